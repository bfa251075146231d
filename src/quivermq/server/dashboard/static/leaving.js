// Going elsewhere while a form is filled in asks first, as Escape does.
//
// A browser tells of another address when it is there already, and in which direction it went it does not tell. So every
// entry of the history has a number; who finds a filled form here goes back to where it came from, asks, and goes on.

import { filledForm, throwsAway } from "./dialog.js";

let at = 0;
// Where the form is, while somebody is asked about it.
let home = "";

/** Call `go()` for every other address, once nobody has anything against it. */
export function watchAddress(go) {
  at = history.state?.at ?? 0;
  number(at);
  window.addEventListener("hashchange", (event) => arrived(go, event));
  // Closing the tab and loading anew: here the browser asks, in its own words.
  window.addEventListener("beforeunload", (event) => filledForm() && event.preventDefault());
}

function arrived(go, { oldURL }) {
  // An entry without a number is new, and stands behind the one where we were.
  const to = history.state?.at ?? at + 1;
  // Back from where nobody wanted to go after all.
  if (to === at) return;
  if (filledForm()) {
    stay(to, oldURL);
    return;
  }
  at = to;
  number(at);
  go();
}

/** Go back to where the form is, and on to where one wanted to go if it may be thrown away. */
async function stay(to, here) {
  if (home) {
    // Somebody is being asked, and goes elsewhere again: no way back is sure now, so the form gets an entry of its own.
    history.pushState({ at }, "", home);
    return;
  }
  const { hash } = location;
  const isNew = history.state?.at === undefined;
  const steps = to - at;
  home = here;
  history.go(-steps);
  const mayGo = await throwsAway(filledForm().title);
  home = "";
  if (!mayGo) return;
  for (let form = filledForm(); form; form = filledForm()) form.close();
  if (isNew) location.hash = hash;
  else history.go(steps);
}

function number(place) {
  history.replaceState({ at: place }, "");
}
