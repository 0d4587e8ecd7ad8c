// Elements from JavaScript. Text is always text: nothing here parses markup.
const SVG = "http://www.w3.org/2000/svg";

function filled(node, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "width%") node.style.width = `${value}%`;
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

export function h(tag, properties, ...children) {
  return filled(document.createElement(tag), properties, children);
}

export function svg(tag, properties, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

export function show(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

// A path of the dashboard; names may contain anything.
export function to(...parts) {
  return "#/" + parts.map(encodeURIComponent).join("/");
}

export function link(text, ...parts) {
  return h("a", { href: to(...parts) }, text);
}

// An address leads to its blocks, where a new one can be made.
export function addressLink(address) {
  return h("a", { href: `${to("blocks")}?subject=${encodeURIComponent(address)}` }, h("code", {}, address));
}

// What decided: a rule, or one of the operators' blocks, which all have this one name.
export function deciderLink(name, source) {
  return name === "block" && source === "block" ? link(name, "blocks") : link(name, "rules", name);
}
