// Elements without markup: text is always text. Owns icons, copying, and downloads.

const SVG = "http://www.w3.org/2000/svg";

const ICONS = {
  menu: "M3 6h18M3 12h18M3 18h12",
  plus: "M12 5v14M5 12h14",
  sliders: "M4 7h9m4 0h3M4 17h3m4 0h9M15 4.5v5M9 14.5v5",
  send: "M12 19V5m-6 6 6-6 6 6",
  stop: "M7.5 7.5h9v9h-9z",
  copy: "M9 9h10v10H9zM5 15V5h10",
  check: "m5 12.5 4.5 4.5L19 7.5",
  edit: "M4 20h4L19 9l-4-4L4 16zM13.5 6.5l4 4",
  retry: "M19 12a7 7 0 1 1-2.2-5.1M19 4v4h-4",
  trash: "M5 7h14M10 7V5h4v2M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5",
  left: "m14 6-6 6 6 6",
  right: "m10 6 6 6-6 6",
  down: "M12 5v14m-6-6 6 6 6-6",
  close: "m6 6 12 12M18 6 6 18",
  export: "M12 15V4m-4 4 4-4 4 4M5 14v5h14v-5",
  import: "M12 4v11m-4-4 4 4 4-4M5 14v5h14v-5",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8M12 3v1.5m0 15V21m9-9h-1.5m-15 0H3m15.4-6.4-1.1 1.1M6.7 17.3l-1.1 1.1m0-12.8 1.1 1.1m10.6 10.6 1.1 1.1",
  moon: "M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10z",
  auto: "M12 4a8 8 0 1 0 0 16zM12 4a8 8 0 0 1 0 16",
  book: "M5 5.5C7.5 4.5 10 4.7 12 6c2-1.3 4.5-1.5 7-.5v13c-2.5-1-5-.8-7 .5-2-1.3-4.5-1.5-7-.5zM12 6v13",
  tool: "M14.5 5.5a4 4 0 0 0 4.6 5.4L20 12a4.5 4.5 0 0 1-6 .6L7.5 19 5 16.500l6.400-6.500A4.500 4.500 0 0 1 12 4z",
};

/** An icon of the set, hidden from screen readers: whatever holds it has a name. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", "icon");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/**
 * An element. Properties: `on…` listeners, `class`, `dataset`, anything else an attribute; false and
 * null leave it out. Children are nodes or texts.
 */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** A button that shows an icon only; its name is for the tooltip and for screen readers. */
export function iconButton(name, label, onclick, extra = {}) {
  return h("button", { type: "button", class: "icon-button", title: label, "aria-label": label, onclick, ...extra }, icon(name));
}

/** Put `text` on the clipboard; also where the browser keeps its clipboard API for secure pages. */
export async function copyText(text) {
  if (navigator.clipboard && window.isSecureContext) {
    await navigator.clipboard.writeText(text);
    return;
  }
  const focused = document.activeElement;
  const area = h("textarea", { class: "visually-hidden", value: text, "aria-hidden": "true", tabindex: "-1" });
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
  focused?.focus();
}

/** A button that copies what `textOf` gives, and says so for a moment. */
export function copyButton(label, textOf) {
  const button = iconButton("copy", label, async () => {
    await copyText(textOf());
    button.replaceChildren(icon("check"));
    say("Copied");
    setTimeout(() => button.replaceChildren(icon("copy")), 1400);
  });
  return button;
}

/** Tell screen readers something, politely. */
export function say(text) {
  const status = document.getElementById("status");
  status.textContent = "";
  requestAnimationFrame(() => { status.textContent = text; });
}

/** Offer `text` as a file. */
export function download(name, text, type) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
