// Runs before everything else, and is no module: when a part of the page could not be loaded, because the broker went away in the
// middle, this loads the page anew as soon as the broker answers.

(() => {
  const FIRST_MS = 1000;
  const LONGEST_MS = 15_000;
  let wait = FIRST_MS;
  let isTrying = false;

  async function again() {
    try {
      const answer = await fetch("healthz", { cache: "no-store", credentials: "omit" });
      if (answer.ok) {
        location.reload();
        return;
      }
    } catch {
      // It is still away.
    }
    wait = Math.min(LONGEST_MS, wait * 2);
    setTimeout(again, wait);
  }

  /** Load the page anew once the broker is there. */
  window.quiverReload = () => {
    if (isTrying) return;
    isTrying = true;
    setTimeout(again, wait);
  };

  // Errors of scripts and styles that did not load do not bubble, and so are caught on their way down.
  window.addEventListener("error", ({ target }) => {
    if (target instanceof HTMLScriptElement || target instanceof HTMLLinkElement) window.quiverReload();
  }, true);
})();
