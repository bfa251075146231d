"""What crash tests have in common: a log that is watched, and what must be true after every crash.

- `ledger`: what a log was asked to keep and what it has promised, and the check of one against the other.
- `witness`: a log that does its work and writes every promise into a ledger.
- `scenarios`: the work.
- `accidents`: logs to which one thing happens, and the things.
- `victim`: a real process, to be killed.
- `judgement`: opens what a crash left, in all the ways the promises have to hold.
"""

from support.crash.judgement import every, glance, judge, judge_interrupted_recovery, seeds, told
from support.crash.ledger import Ledger, Message, Model
from support.crash.scenarios import SCENARIOS, Scenario
from support.crash.witness import DATA, LOG, SMALL, Witness

__all__ = [
    "DATA",
    "LOG",
    "SCENARIOS",
    "SMALL",
    "Ledger",
    "Message",
    "Model",
    "Scenario",
    "Witness",
    "every",
    "glance",
    "judge",
    "judge_interrupted_recovery",
    "seeds",
    "told",
]
