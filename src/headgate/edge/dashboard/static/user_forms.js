// The keys of a user.
import { part, send } from "./api.js";
import { h } from "./dom.js";
import { ago, day, limits } from "./format.js";
import { ask, badge, button, card, empty, field, select, showSecret, table, tell } from "./ui.js";

export function keysCard({ may }, user, keys, again) {
  const create = button("New key", async () => {
    const name = h("input", { name: "name", placeholder: "the app on phones" });
    const expiry = h("input", { name: "expires", type: "date" });
    let made = null;
    await ask("New key", { fields: [field("Name", name), field("Expires", expiry, "optional")], yes: "Create", act: async () => {
      const body = { user, ...(name.value ? { name: name.value } : {}), ...(expiry.value ? { expires_at: `${expiry.value}T00:00:00Z` } : {}) };
      made = (await send("POST", "/v1/keys", { body })).data;
    } });
    if (made) {
      showSecret("The new key", made.secret);
      again();
    }
  });
  const node = card(
    "Keys",
    table(
      "Keys",
      [
        { name: "Key", cell: (row) => h("code", {}, `${row.prefix}…`) },
        { name: "Name", cell: (row) => row.name ?? "" },
        { name: "State", cell: (row) => badge(row.state, row.state === "active" ? "up" : "") },
        { name: "Own limits", cell: (row) => Object.entries(row.limits).map(([rule, given]) => `${rule}: ${limits(given)}`).join("; ") },
        { name: "Expires", num: true, cell: (row) => (row.expires_at ? day(row.expires_at) : "never") },
        { name: "Last used", num: true, cell: (row) => ago(row.last_used) },
        { name: "", tight: true, cell: (row) => (may("operator") && row.state === "active" ? h("span", { class: "actions" }, rotate(row, again), revoke(row, again)) : "") },
      ],
      keys,
      empty("No keys", may("operator") ? "A key identifies this user to the decision service. Create one, and hand it over." : "A key identifies this user to the decision service."),
    ),
  );
  if (may("operator")) node.querySelector(".card-head").append(create);
  return node;
}

function rotate(key, again) {
  return button("Rotate", async () => {
    const overlap = select([["0", "no: it ends at once"], ["3600", "for one hour"], ["86400", "for one day"]], "3600");
    let made = null;
    await ask("Rotate this key?", { text: `A new key takes the place of ${key.prefix}…`, fields: [field("Keep the old one valid", overlap)], yes: "Rotate", act: async () => {
      made = (await send("POST", `/v1/keys/${part(key.id)}/rotate`, { body: { overlap_seconds: Number(overlap.value) } })).data;
    } });
    if (made) {
      showSecret("The new key", made.secret);
      again();
    }
  }, "plain");
}

function revoke(key, again) {
  return button("Revoke", () => ask("Revoke this key?", { text: `${key.prefix}… is refused from now on. This cannot be undone.`, yes: "Revoke", danger: true, act: async () => {
    await send("POST", `/v1/keys/${part(key.id)}/revoke`);
    tell("Revoked");
    again();
  } }), "plain");
}
