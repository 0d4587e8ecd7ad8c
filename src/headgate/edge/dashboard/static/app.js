// The frame of the dashboard: sign-in, navigation, one page at a time.
import { get, send, whenSignedOut } from "./api.js";
import { h, show, to } from "./dom.js";
import { icon } from "./icons.js";
import { fail } from "./ui.js";

const PAGES = [
  ["Watch", [["overview", "Overview"], ["events", "Events"], ["changes", "Changes"]]],
  ["Limit", [["rules", "Rules"], ["tiers", "Tiers"], ["users", "Users and keys"], ["blocks", "Blocks"], ["explain", "Explain"], ["simulate", "Simulate"]]],
  ["Manage", [["access", "Access"], ["api", "API"]]],
];
const ROLES = ["viewer", "operator", "admin"];
const root = document.getElementById("app");
let me = null;
let leaving = new AbortController();

function signIn(message = "") {
  me = null;
  leaving.abort();
  document.title = "Sign in · Headgate";
  const token = h("input", { type: "password", name: "token", autocomplete: "current-password", required: true, autofocus: true });
  const wrong = h("p", { role: "alert", class: "is-denied" }, message);
  const go = h("button", { type: "submit", class: "main" }, "Sign in");
  const form = h("form", {}, h("div", { class: "brand" }, h("img", { src: "/ui/icon.svg", alt: "" }), h("h1", {}, "Headgate")), h("label", {}, "Token", token), h("p", { class: "small quiet" }, "A token of the admin API: headgate serve says at its start where one is, and the page Access makes more."), wrong, go);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    try {
      await send("POST", "/ui/session", { body: { token: token.value } });
      await start();
    } catch (error) {
      wrong.textContent = error.message;
      token.select();
    } finally {
      go.disabled = false;
    }
  });
  show(root, h("main", { class: "sign-in", id: "main" }, form));
  token.focus();
}

async function signOut() {
  try {
    await send("DELETE", "/ui/session");
  } catch (error) {
    fail(error);
  }
  signIn();
}

function switchTheme() {
  const dark = getComputedStyle(document.documentElement).colorScheme.includes("dark");
  const chosen = dark ? "light" : "dark";
  document.documentElement.dataset.theme = chosen;
  try {
    localStorage.setItem("headgate-theme", chosen);
  } catch {
    // It holds until the page is closed.
  }
}

function frame() {
  const main = h("main", { id: "main" });
  const box = h("div", { class: "frame" });
  const nav = h("nav", { class: "nav", "aria-label": "Pages" }, PAGES.map(([title, pages]) => h("div", { class: "nav-group" }, h("div", { class: "nav-title" }, title), pages.map(([name, text]) => h("a", { href: to(name), "data-page": name }, icon(name), text)))));
  const open = (is) => box.classList.toggle("menu-open", is);
  const brand = () => h("a", { class: "brand", href: to("overview") }, h("img", { src: "/ui/icon.svg", alt: "" }), "Headgate");
  const who = h("div", { class: "who" }, h("div", {}, h("div", { class: "who-name" }, me.name.replace(/^token:/, "")), h("div", { class: "small quiet" }, `role ${me.role}`)), h("div", { class: "who-buttons" }, h("button", { type: "button", class: "round theme", title: "Light or dark", "aria-label": "Light or dark", onclick: switchTheme }, icon("theme")), h("button", { type: "button", class: "round sign-out", title: "Sign out", "aria-label": "Sign out", onclick: signOut }, icon("out"))));
  const side = h("div", { class: "side" }, brand(), h("button", { type: "button", class: "round close-menu", "aria-label": "Close the menu", onclick: () => open(false) }, icon("close")), nav, who);
  const top = h("header", { class: "top" }, brand(), h("button", { type: "button", class: "round menu", "aria-label": "Open the menu", onclick: () => open(true) }, icon("menu")));
  nav.addEventListener("click", () => open(false));
  show(root, show(box, side, h("div", {}, top, main)));
  return { main, nav };
}

let shell = null;

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // typed by hand
  }
}

async function turnTo() {
  if (!me) return;
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const [path, search] = location.hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").map(decoded);
  const known = PAGES.flatMap(([, pages]) => pages);
  const [name, title] = known.find(([each]) => each === parts[0]) ?? known[0];
  for (const each of shell.nav.querySelectorAll("a")) {
    if (each.dataset.page === name) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  document.title = `${title} · Headgate`;
  const main = h("main", { id: "main" }, h("p", { class: "quiet" }, "Loading…"));
  shell.main.replaceWith(main);
  shell.main = main;
  window.scrollTo(0, 0);
  const context = {
    main,
    signal,
    parts: parts.slice(1),
    query: new URLSearchParams(search ?? ""),
    me,
    may: (role) => ROLES.indexOf(me.role) >= ROLES.indexOf(role),
    every(milliseconds, action) {
      let busy = false;
      const timer = setInterval(async () => {
        if (busy || document.hidden || signal.aborted) return;
        busy = true;
        try {
          await action();
        } catch (error) {
          fail(error);
        } finally {
          busy = false;
        }
      }, milliseconds);
      signal.addEventListener("abort", () => clearInterval(timer));
    },
  };
  try {
    const module = await import(`/ui/pages/${name}.js`);
    if (signal.aborted) return;
    await module.page(context);
    if (!signal.aborted) main.querySelector("h1")?.focus({ preventScroll: true });
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return;
    show(main, h("div", { class: "page-head" }, h("h1", { tabindex: -1 }, error.status === 404 ? "Not found" : "This page cannot be shown")), h("div", { class: "banner warn", role: "alert" }, h("strong", {}, error.message), h("span", {}, h("a", { href: to(name) }, "Back to the list"))));
  }
}

async function start() {
  const session = await get("/ui/session");
  if (!session.role) {
    signIn();
    return;
  }
  me = session;
  shell = frame();
  await turnTo();
}

whenSignedOut(() => me && signIn("The session has ended. Sign in again."));
window.addEventListener("hashchange", () => turnTo().catch(fail));
start().catch((error) => signIn(error.message));
