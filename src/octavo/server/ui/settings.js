// The panel of parameters: what each request carries besides its messages. Owns the form's fields and
// their checks; does not send anything.

import { h } from "./dom.js";

const NUMBERS = [
  { name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.1 },
  { name: "top_p", label: "Top p", min: 0, max: 1, step: 0.05 },
  { name: "top_k", label: "Top k", min: -1, step: 1 },
  { name: "min_p", label: "Min p", min: 0, max: 1, step: 0.05 },
  { name: "max_tokens", label: "Max tokens", min: 1, step: 1 },
  { name: "seed", label: "Seed", step: 1 },
  { name: "repetition_penalty", label: "Repetition penalty", min: 0.1, max: 2, step: 0.05 },
  { name: "presence_penalty", label: "Presence penalty", min: -2, max: 2, step: 0.1 },
  { name: "frequency_penalty", label: "Frequency penalty", min: -2, max: 2, step: 0.1 },
];
const NEUTRAL = { temperature: 1, top_p: 1, min_p: 0, repetition_penalty: 1, presence_penalty: 0, frequency_penalty: 0, top_k: "all", max_tokens: "what fits", seed: "random" };

/** The fields of a request that the settings ask for. Throws an Error that names the field. */
export function parametersOf(settings) {
  const body = {};
  for (const { name, label, step } of NUMBERS) {
    const text = settings[name];
    if (text === undefined || text === "") continue;
    const value = Number(text);
    if (!Number.isFinite(value) || (step === 1 && !Number.isInteger(value))) throw new Error(`${label} must be a ${step === 1 ? "whole " : ""}number.`);
    body[name] = value;
  }
  const stop = (settings.stop ?? "").split("\n").filter(Boolean).map((line) => line.replaceAll("\\n", "\n"));
  if (stop.length) body.stop = stop;
  if (settings.effort) body.reasoning_effort = settings.effort;
  if (settings.form === "json_object") body.response_format = { type: "json_object" };
  if (settings.form === "json_schema") {
    body.response_format = { type: "json_schema", json_schema: { name: "answer", schema: parsed(settings.schema, "The JSON schema") } };
  }
  if (settings.tools?.trim()) {
    body.tools = parsed(settings.tools, "Tools");
    if (!Array.isArray(body.tools)) throw new Error("Tools must be a list: [{\"type\": \"function\", …}].");
    if (settings.toolChoice) body.tool_choice = settings.toolChoice;
  }
  return body;
}

function parsed(text, label) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${label} must be JSON: ${error.message}`);
  }
}

/** The panel. `onChange(settings)` after each edit; `onSystem(text)` for the conversation's own prompt. */
export class SettingsPanel {
  constructor(container, settings, { onChange, onSystem, onKey }) {
    this._settings = settings;
    this._onChange = onChange;
    this._inputs = {};
    this._system = h("textarea", { id: "system", rows: 4, placeholder: "You are a careful editor…", oninput: (event) => onSystem(event.target.value) });
    this._key = h("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", onchange: () => onKey(this._key.value.trim(), this._keep.checked) });
    this._keep = h("input", { type: "checkbox", onchange: () => onKey(this._key.value.trim(), this._keep.checked) });
    this._keyBox = h("fieldset", {}, h("legend", {}, "API key"),
      h("label", { class: "field", for: "key" }, h("span", {}, "The server asks for a key"), this._key),
      h("label", { class: "choice" }, this._keep, "Keep it in this browser"));
    this._problem = h("p", { class: "problem", role: "alert" });
    this._effortField = this._select("effort", "Reasoning effort", [["", "as the model likes"]]);
    const schema = this._area("schema", "JSON schema", 5, "{\"type\": \"object\", …}");
    const form = this._select("form", "Answer as", [["", "free text"], ["json_object", "a JSON object"], ["json_schema", "JSON of a schema"]]);
    const showSchema = () => { schema.hidden = this._settings.form !== "json_schema"; };
    form.addEventListener("change", showSchema);
    showSchema();
    container.append(
      this._keyBox,
      h("fieldset", {}, h("legend", {}, "System prompt"), h("label", { class: "field", for: "system" }, h("span", {}, "For this conversation"), this._system)),
      h("fieldset", {}, h("legend", {}, "Sampling"), h("div", { class: "grid" }, NUMBERS.map((field) => this._number(field)))),
      h("fieldset", {}, h("legend", {}, "Answer"), this._effortField, this._area("stop", "Stop at (one a line)", 2, ""), form, schema),
      h("fieldset", {}, h("legend", {}, "Tools"), this._area("tools", "Functions (JSON)", 5, "[{\"type\": \"function\", \"function\": {\"name\": …}}]"),
        this._select("toolChoice", "Tool choice", [["", "auto"], ["required", "required"], ["none", "none"]])),
      this._problem,
      h("button", { type: "button", class: "quiet", onclick: () => this._reset() }, "Reset parameters"));
  }

  /** Show what the server says of itself: defaults as placeholders, efforts where it has them. */
  showCapabilities(capabilities) {
    const defaults = { ...NEUTRAL, ...capabilities.sampling_defaults };
    for (const { name } of NUMBERS) this._inputs[name].placeholder = defaults[name];
    const efforts = capabilities.reasoning?.efforts ?? [];
    this._effortField.hidden = !efforts.length;
    this._inputs.effort.replaceChildren(...[["", "as the model likes"], ...efforts.map((one) => [one, one])].map(([value, label]) => h("option", { value }, label)));
    this._inputs.effort.value = efforts.includes(this._settings.effort) ? this._settings.effort : "";
  }

  showSystem(text) {
    this._system.value = text;
  }

  showKey({ key, isKept }, isWanted) {
    this._key.value = key;
    this._keep.checked = isKept;
    this._keyBox.hidden = !isWanted && !key;
  }

  focusKey() {
    this._keyBox.hidden = false;
    this._key.focus();
  }

  _set(name, value) {
    this._settings[name] = value;
    try {
      parametersOf(this._settings);
      this._problem.textContent = "";
    } catch (error) {
      this._problem.textContent = error.message;
    }
    this._onChange(this._settings);
  }

  _reset() {
    for (const [name, input] of Object.entries(this._inputs)) {
      input.value = "";
      this._set(name, "");
      input.dispatchEvent(new Event("change"));
    }
  }

  _number({ name, label, ...limits }) {
    const input = h("input", { id: name, type: "number", inputmode: limits.step === 1 ? "numeric" : "decimal", ...limits, value: this._settings[name] ?? "", oninput: () => this._set(name, input.value) });
    this._inputs[name] = input;
    return h("label", { class: "field", for: name }, h("span", {}, label), input);
  }

  _area(name, label, rows, placeholder) {
    const area = h("textarea", { id: name, rows, placeholder, spellcheck: "false", class: "mono", value: this._settings[name] ?? "", oninput: () => this._set(name, area.value) });
    this._inputs[name] = area;
    return h("label", { class: "field", for: name }, h("span", {}, label), area);
  }

  _select(name, label, choices) {
    const select = h("select", { id: name, onchange: () => this._set(name, select.value) }, choices.map(([value, text]) => h("option", { value }, text)));
    select.value = this._settings[name] ?? "";
    this._inputs[name] = select;
    return h("label", { class: "field", for: name }, h("span", {}, label), select);
  }
}
