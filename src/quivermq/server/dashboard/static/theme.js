// Light, dark, or as the system has it. Runs before anything is drawn, hence not as a module.
"use strict";
(() => {
  const NAME = "quiver-theme";
  const CHOICES = ["system", "light", "dark"];
  const system = matchMedia("(prefers-color-scheme: dark)");
  let choice = "system";
  try {
    const kept = localStorage.getItem(NAME);
    if (CHOICES.includes(kept)) choice = kept;
  } catch {
    // A browser that keeps nothing for this page has no choice of its own.
  }
  const apply = () => {
    const dark = choice === "dark" || (choice === "system" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
  };
  apply();
  system.addEventListener("change", apply);
  window.quiverTheme = {
    get: () => choice,
    next() {
      choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length];
      apply();
      try {
        localStorage.setItem(NAME, choice);
      } catch {
        // It holds until the page is loaded again.
      }
      return choice;
    },
  };
})();
