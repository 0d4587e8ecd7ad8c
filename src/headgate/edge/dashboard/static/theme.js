// Runs before the first paint, so that a chosen theme does not flash.
"use strict";
try {
  const chosen = localStorage.getItem("headgate-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Storage may be forbidden; the theme of the system is used then.
}
