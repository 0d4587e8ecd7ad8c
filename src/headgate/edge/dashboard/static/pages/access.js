// Tokens and roles.
import { get, part, send } from "../api.js";
import { h, show } from "../dom.js";
import { ago, day } from "../format.js";
import { ask, badge, button, card, empty, field, heading, select, showSecret, table, tell } from "../ui.js";

const ROLES = [
  ["viewer", "reads everything, and explains, plans and simulates"],
  ["operator", "also users, keys, blocks, and enables and disables rules"],
  ["admin", "also rules, tiers, snapshots and tokens"],
];

export async function page({ main, signal, may, me }) {
  const body = h("div", { class: "flush" });
  const roles = card("Roles", h("dl", {}, ROLES.map(([role, text]) => [h("dt", {}, badge(role, role === me.role ? "up" : "")), h("dd", {}, text)])), h("p", { class: "small quiet" }, `You are signed in as ${me.name.replace(/^token:/, "")}, with the role ${me.role}.`));
  if (!may("admin")) {
    show(main, heading("Access", { text: "Tokens of the admin API, and what they may do." }), h("div", { class: "banner" }, h("span", {}, "Tokens are listed for the role admin only.")), roles);
    return;
  }
  async function load() {
    const { items } = await get("/v1/tokens", {}, signal);
    show(body, tokenTable(items, load));
  }
  const create = button("New token", async () => {
    const name = h("input", { name: "name", required: true, placeholder: "ci" });
    const role = select(ROLES.map(([each]) => [each, each]), "viewer", { name: "role" });
    const expiry = h("input", { name: "expires", type: "date" });
    let made = null;
    await ask("New token", { fields: [field("Name", name), field("Role", role), field("Expires", expiry, "optional")], yes: "Create", act: async () => {
      made = (await send("POST", "/v1/tokens", { body: { name: name.value, role: role.value, ...(expiry.value ? { expires_at: `${expiry.value}T00:00:00Z` } : {}) } })).data;
    } });
    if (made) {
      showSecret("The new token", made.secret);
      await load();
    }
  }, "main");
  show(main, heading("Access", { text: "Tokens of the admin API, and what they may do.", actions: create }), card("Tokens", body), roles);
  await load();
}

function tokenTable(items, load) {
  return table(
    "Tokens",
    [
      { name: "Name", cell: (row) => row.name },
      { name: "Role", cell: (row) => row.role },
      { name: "Token", cell: (row) => h("code", {}, `${row.prefix}…`) },
      { name: "State", cell: (row) => badge(row.state, row.state === "active" ? "up" : "") },
      { name: "Created by", cell: (row) => row.created_by.replace(/^token:/, "") },
      { name: "Expires", num: true, cell: (row) => (row.expires_at ? day(row.expires_at) : "never") },
      { name: "Last used", num: true, cell: (row) => ago(row.last_used) },
      { name: "", tight: true, cell: (row) => (row.state === "active" ? button("Revoke", () => ask("Revoke this token?", { text: `"${row.name}" is refused from now on, and its sessions end. This cannot be undone.`, yes: "Revoke", danger: true, act: async () => {
        await send("DELETE", `/v1/tokens/${part(row.id)}`);
        tell("Revoked");
        await load();
      } }), "plain") : "") },
    ],
    items,
    empty("No tokens", "Only the token from the settings exists. Create one for each person and each program, with the least role that is enough."),
  );
}
