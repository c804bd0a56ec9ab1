// The page's frame: side panels, theme, scrolling with an answer that grows, short notes. Knows
// nothing of conversations.

import { h, icon } from "./dom.js";

const THEMES = ["auto", "light", "dark"];
const THEME_ICONS = { auto: "auto", light: "sun", dark: "moon" };
const NEAR_END_PX = 80;
const TOAST_MS = 8000;

const $ = (id) => document.getElementById(id);

export class Layout {
  constructor(settings, onChange) {
    this._settings = settings;
    this._onChange = onChange;
    this._narrow = matchMedia("(max-width: 860px)");
    this._isAtEnd = true;
    this._shape = ""; // heights of the thread and its window when they were last looked at
    this._opener = null; // what had the focus before a panel opened
    this._showTheme();
    $("theme").addEventListener("click", () => this._nextTheme());
    $("open-sidebar").addEventListener("click", () => this._toggleSidebar());
    $("close-sidebar").addEventListener("click", () => this._setSidebar(false));
    $("open-settings").addEventListener("click", () => ($("settings").hidden ? this.openSettings() : this.closeSettings()));
    $("close-settings").addEventListener("click", () => this.closeSettings());
    $("veil").addEventListener("click", () => this.closeTop());
    $("scroller").addEventListener("scroll", () => this._noteScroll(), { passive: true });
    $("jump").addEventListener("click", () => this.toEnd());
    const resizes = new ResizeObserver(() => this.follow());
    resizes.observe($("scroller"));
    resizes.observe($("thread"));
    this._narrow.addEventListener("change", () => this._adapt());
    this._adapt();
  }

  get isNarrow() {
    return this._narrow.matches;
  }

  /** Close what lies on top of the page; whether there was anything. */
  closeTop() {
    if (!$("settings").hidden && (this.isNarrow || $("settings").contains(document.activeElement))) { this.closeSettings(); return true; }
    if (this.isNarrow && this._isSidebarOpen) { this._setSidebar(false); return true; }
    return false;
  }

  openSettings() {
    if (!$("settings").hidden) return;
    if (this.isNarrow) this._setSidebar(false);
    this._opener = document.activeElement;
    $("settings").hidden = false;
    $("open-settings").setAttribute("aria-expanded", "true");
    this._veil();
    $("close-settings").focus();
  }

  closeSettings() {
    $("settings").hidden = true;
    $("open-settings").setAttribute("aria-expanded", "false");
    this._veil();
    (this._opener?.isConnected ? this._opener : $("prompt")).focus();
  }

  closeSidebarOnPhone() {
    if (this.isNarrow) this._setSidebar(false);
  }

  /** Stay at the end of the thread if that is where the reader is. */
  follow() {
    if (this._isAtEnd) this.toEnd();
    else this._noteScroll();
  }

  toEnd() {
    const scroller = $("scroller");
    scroller.scrollTop = scroller.scrollHeight;
    this._shape = `${scroller.scrollHeight} ${scroller.clientHeight}`;
    this._isAtEnd = true;
    $("jump").hidden = true;
  }

  /** A note that goes by itself, with up to two things to do about it. */
  toast(text, ...actions) {
    const buttons = [];
    for (let at = 0; at < actions.length; at += 2) {
      const [label, act] = actions.slice(at, at + 2);
      buttons.push(h("button", { type: "button", onclick: () => { $("toast").hidden = true; act(); } }, label));
    }
    $("toast").replaceChildren(h("span", {}, text), ...buttons);
    $("toast").hidden = false;
    clearTimeout(this._toastEnd);
    this._toastEnd = setTimeout(() => { $("toast").hidden = true; }, TOAST_MS);
  }

  _noteScroll() {
    const { scrollTop, scrollHeight, clientHeight } = $("scroller");
    const shape = `${scrollHeight} ${clientHeight}`;
    if (this._isAtEnd && shape !== this._shape) { this.toEnd(); return; } // the page moved, not its reader
    this._shape = shape;
    this._isAtEnd = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
    $("jump").hidden = this._isAtEnd;
  }

  _adapt() {
    this._setSidebar(!this.isNarrow && this._settings.sidebar !== false, false);
  }

  _toggleSidebar() {
    this._setSidebar(!this._isSidebarOpen);
    if (!this.isNarrow) { this._settings.sidebar = this._isSidebarOpen; this._onChange(); }
  }

  _setSidebar(isOpen, movesFocus = true) {
    const wasOpen = this._isSidebarOpen;
    this._isSidebarOpen = isOpen;
    $("sidebar").hidden = !isOpen;
    $("open-sidebar").setAttribute("aria-expanded", String(isOpen));
    this._veil();
    if (!movesFocus || !this.isNarrow || wasOpen === isOpen) return;
    (isOpen ? $("close-sidebar") : $("open-sidebar")).focus();
  }

  /** On a phone a panel covers the page, which is out of reach meanwhile. */
  _veil() {
    const isCovered = this.isNarrow && (this._isSidebarOpen || !$("settings").hidden);
    $("veil").hidden = !isCovered;
    document.querySelector("main").inert = isCovered;
  }

  _nextTheme() {
    this._settings.theme = THEMES[(THEMES.indexOf(this._settings.theme ?? "auto") + 1) % THEMES.length];
    this._showTheme();
    this._onChange();
  }

  _showTheme() {
    const theme = THEMES.includes(this._settings.theme) ? this._settings.theme : "auto";
    document.documentElement.dataset.theme = theme;
    const button = $("theme");
    button.replaceChildren(icon(THEME_ICONS[theme]));
    button.title = `Theme: ${theme}`;
    button.setAttribute("aria-label", `Theme: ${theme}`);
  }
}
