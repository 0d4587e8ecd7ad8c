// Blocks: users, keys and addresses whose every request is denied.
import { get, part, send } from "../api.js";
import { h, link, show } from "../dom.js";
import { ago, moment, span } from "../format.js";
import { ask, badge, button, card, empty, field, heading, later, pages, select, table, tell } from "../ui.js";
import { ending, newBlock } from "../block_forms.js";

const PER_PAGE = 50;

export async function page({ main, signal, may, query }) {
  const search = h("input", { type: "search", name: "subject", placeholder: "a user, an address, the id of a key", value: query.get("subject") ?? "" });
  const all = pages((after) => get("/v1/blocks", { subject: search.value.trim(), after, limit: PER_PAGE }, signal), (rows) => blockTable(rows, { may, signal, again: () => all.again(), isFiltered: Boolean(search.value.trim()) }));
  search.addEventListener("input", later(all.reload));
  show(
    main,
    heading("Blocks", { text: "Every request of these users, keys and addresses is denied, before any rule, in all processes within a second.", actions: may("operator") ? button("New block", () => newBlock(() => all.reload(), search.value.trim()), "main") : null }),
    h("div", { class: "filters", role: "search" }, field("Find the blocks of", search)),
    card("Blocks that hold now", all.node),
  );
  await all.reload();
}

function blockTable(rows, { may, signal, again, isFiltered }) {
  return table(
    "Blocks",
    [
      { name: "Blocked", cell: (row) => subject(row, signal) },
      { name: "Kind", cell: (row) => badge(row.user !== null ? "user" : row.api_key ? "key" : /\/(32|128)$/.test(row.network) || !row.network.includes("/") ? "address" : "network", "") },
      { name: "Reason", cell: (row) => row.reason ?? h("span", { class: "quiet" }, "none given") },
      { name: "By", cell: (row) => row.created_by.replace(/^token:/, "") },
      { name: "Ends", num: true, cell: (row) => (row.until ? h("span", { title: moment(row.until) }, `in ${span((new Date(row.until) - Date.now()) / 1000)}`) : "never") },
      { name: "Since", num: true, cell: (row) => h("span", { title: moment(row.created_at) }, ago(row.created_at)) },
      { name: "", tight: true, cell: (row) => (may("operator") ? h("div", { class: "actions" }, change(row, again), remove(row, again)) : "") },
    ],
    rows,
    isFiltered ? empty("Not blocked", "No block holds for this user, key or address now.") : empty("No caller is blocked", "A block denies every request of a user, a key, an address or a network, for good or until a time. Make one with New block, or with headgate blocks add."),
  );
}

// Keys are blocked by an id that says nothing.
function subject(row, signal) {
  if (row.user !== null) return link(row.user, "users", row.user);
  if (row.network) return h("code", {}, row.network);
  const node = h("span", {}, h("code", {}, row.api_key));
  get(`/v1/keys/${part(row.api_key)}`, {}, signal).then((key) => show(node, h("code", {}, `${key.prefix}…`), " ", key.name ?? "", key.user ? [" of ", link(key.user, "users", key.user)] : null), () => {});
  return node;
}

function change(row, again) {
  return button("Change", async () => {
    const { data, etag } = await send("GET", `/v1/blocks/${part(row.id)}`); // the row may be older than what the etag stands for
    const reason = h("input", { name: "reason", value: data.reason ?? "" });
    const end = ending(data.until);
    await ask("Change this block", { fields: [end.nodes, field("Reason", reason, "operators see it, and so does the caller")], act: async () => {
      await send("PUT", `/v1/blocks/${part(row.id)}`, { etag, body: { ...end.value(), ...(reason.value ? { reason: reason.value } : {}) } });
      tell("Changed");
      await again();
    } });
  }, "plain");
}

function remove(row, again) {
  const name = row.user ?? row.network ?? "this key";
  return button("Remove", () => ask("Remove this block?", { text: `Requests of ${name} are limited by rules again, and no longer denied by this block.`, yes: "Remove", danger: true, act: async () => {
    await send("DELETE", `/v1/blocks/${part(row.id)}`);
    tell("Removed");
    await again();
  } }), "plain");
}
