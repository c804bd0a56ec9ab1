// What stays in this browser: conversations in IndexedDB, settings in localStorage, the key where its
// owner wants it. Where the browser keeps nothing, everything lives until the page is closed.

const NAME = "octavo";
const CONVERSATIONS = "conversations";
const SETTINGS = "octavo.settings";
const KEY = "octavo.key";

/** All conversations, by id. Changes are written in the order they are made. */
export class Conversations {
  constructor() {
    this.all = new Map();
    this.isKept = false;
    this._database = null;
    this._waiting = new Map(); // id -> timer of a write to come
  }

  /** Read everything. Never throws: without a database there is just nothing to read. */
  async open() {
    try {
      this._database = await opened();
      for (const one of await result(this._store("readonly").getAll())) this.all.set(one.id, one);
      this.isKept = true;
    } catch {
      this._database = null;
    }
  }

  /** The conversations, the newest first. */
  list() {
    return [...this.all.values()].sort((one, other) => other.updated - one.updated);
  }

  /** Keep a conversation as it is now. */
  async save(conversation) {
    this.all.set(conversation.id, conversation);
    clearTimeout(this._waiting.get(conversation.id));
    this._waiting.delete(conversation.id);
    try {
      if (this._database) await result(this._store("readwrite").put(conversation));
    } catch {
      this.isKept = false; // no room left: it lives until the page is closed
    }
  }

  /** Keep it soon: for answers that grow. */
  saveSoon(conversation) {
    if (this._waiting.has(conversation.id)) return;
    this._waiting.set(conversation.id, setTimeout(() => this.save(conversation), 500));
  }

  async remove(id) {
    this.all.delete(id);
    clearTimeout(this._waiting.get(id));
    this._waiting.delete(id);
    if (this._database) await result(this._store("readwrite").delete(id));
  }

  _store(mode) {
    return this._database.transaction(CONVERSATIONS, mode).objectStore(CONVERSATIONS);
  }
}

function opened() {
  const request = indexedDB.open(NAME, 1);
  request.onupgradeneeded = () => request.result.createObjectStore(CONVERSATIONS, { keyPath: "id" });
  return result(request);
}

function result(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** The settings as they were left. */
export function readSettings() {
  try {
    return JSON.parse(localStorage.getItem(SETTINGS)) ?? {};
  } catch {
    return {};
  }
}

export function writeSettings(settings) {
  try {
    localStorage.setItem(SETTINGS, JSON.stringify(settings));
  } catch { /* the page goes on without */ }
}

/** {key, isKept}: the API key of this tab, or of this browser. */
export function readKey() {
  try {
    const kept = localStorage.getItem(KEY);
    return { key: kept ?? sessionStorage.getItem(KEY) ?? "", isKept: kept !== null };
  } catch {
    return { key: "", isKept: false };
  }
}

export function writeKey(key, isKept) {
  try {
    localStorage.removeItem(KEY);
    sessionStorage.removeItem(KEY);
    if (key) (isKept ? localStorage : sessionStorage).setItem(KEY, key);
  } catch { /* the page goes on without */ }
}
