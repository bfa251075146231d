"""The queue as a plain-Python model: what a user may rely on, written down so that it can be checked.

The model does not predict what the queue does next, it knows what it may do. A queue is free in its
choice of lane, in the jitter of a backoff and, where a crash interrupted a call, in whether that call
took place. So for each message and group the model keeps the set of states it may be in; every answer
of the queue has to fit one of them, and leaves those that it fits.

- `states`: the states, and what each of them allows.
- `group`: the messages of a topic as one group sees them: deliveries, settlements, order.
- `topic`: what was sent, where it has to be found, and where it may have gone.
- `looking`: what an engine shows, as the model wants to see it.
- `messages`: a message as it was sent and as it is shown.
"""

from support.queue_model.group import GroupModel
from support.queue_model.looking import look
from support.queue_model.messages import Place, Sent
from support.queue_model.states import Doomed, Finished, Leased, Rules, Waiting
from support.queue_model.topic import TopicModel

__all__ = [
    "Doomed",
    "Finished",
    "GroupModel",
    "Leased",
    "Place",
    "Rules",
    "Sent",
    "TopicModel",
    "Waiting",
    "look",
]
