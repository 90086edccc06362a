// JSON as text: the service delivers a payload as it was written, so its numbers are never parsed and formatted again.

const SPACE = /[ \t\n\r]*/y;
const TOKEN = /[{}[\],:]|"(?:[^"\\\u0000-\u001f]+|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\d.])|true|false|null/y;
const WANTED = { value: "a value", first: "a value or ]", key: 'a name in double quotes', "first key": 'a name in double quotes or }', colon: "a colon (:)", more: "a comma or the closing bracket", end: "the end of the text" };
const OPENS = { "{": "first key", "[": "first" };

/** Thrown for a text that is not JSON. `message` says where, and what was expected. */
export class NotJson extends Error {}

function fault(text, at, wants) {
  const before = text.slice(0, at).split("\n");
  const found = at >= text.length ? "the text ends" : `found ${JSON.stringify([...text.slice(at, at + 20)][0])}`;
  return new NotJson(`Line ${before.length}, column ${before.at(-1).length + 1}: expected ${WANTED[wants]}, ${found}.`);
}

/** Return the tokens of a JSON text. Throws `NotJson`. */
export function tokens(text) {
  const found = [];
  const open = [];
  let wants = "value";
  for (let at = 0; ;) {
    SPACE.lastIndex = at;
    SPACE.exec(text);
    at = SPACE.lastIndex;
    if (at >= text.length) {
      if (wants === "end") return found;
      throw fault(text, at, wants);
    }
    TOKEN.lastIndex = at;
    const token = TOKEN.exec(text)?.[0];
    if (!token) throw fault(text, at, wants);
    const closes = (token === "}" && (wants === "first key" || (wants === "more" && open.at(-1) === "{"))) || (token === "]" && (wants === "first" || (wants === "more" && open.at(-1) === "[")));
    const value = !"}],:".includes(token) && (wants === "value" || wants === "first");
    if (closes) {
      open.pop();
      wants = open.length ? "more" : "end";
    } else if (value) {
      if (OPENS[token]) open.push(token);
      wants = OPENS[token] ?? (open.length ? "more" : "end");
    } else if (token[0] === '"' && (wants === "key" || wants === "first key")) wants = "colon";
    else if (token === ":" && wants === "colon") wants = "value";
    else if (token === "," && wants === "more") wants = open.at(-1) === "{" ? "key" : "value";
    else throw fault(text, at, wants);
    found.push(token);
    at = TOKEN.lastIndex;
  }
}

/** Return a JSON text without spaces; numbers and texts stay as they are written. */
export const compact = (text) => tokens(text).join("");

/** Return a JSON text with a line for each member; numbers and texts stay as they are written. */
export function pretty(text) {
  const all = tokens(text);
  let [made, depth] = ["", 0];
  const line = () => `\n${"  ".repeat(depth)}`;
  all.forEach((token, at) => {
    const before = all[at - 1];
    if (token === "}" || token === "]") {
      depth -= 1;
      made += before === "{" || before === "[" ? token : line() + token;
      return;
    }
    if (before === "{" || before === "[" || before === ",") made += line();
    made += token === ":" ? ": " : token;
    if (OPENS[token]) depth += 1;
  });
  return made;
}

/** Return a member of a JSON object as it is written; undefined without it. */
export function member(text, name) {
  const all = tokens(text);
  let [depth, from, found] = [0, 0, undefined];
  all.forEach((token, at) => {
    if (token === "}" || token === "]") depth -= 1;
    if (from && ((depth === 1 && token === ",") || depth === 0)) {
      found = all.slice(from, at).join("");
      from = 0;
    }
    if (depth === 1 && token === ":" && JSON.parse(all[at - 1]) === name) from = at + 1;
    if (OPENS[token]) depth += 1;
  });
  return found;
}

const UNSEEN = /[\p{C}\p{Zl}\p{Zp}]/gu;
/** Return true for a text with invisible characters, or characters that change the direction of the text around them. */
export const unseen = (text) => text.search(UNSEEN) >= 0;
const units = (text) => Array.from({ length: text.length }, (_, at) => `\\u${text.charCodeAt(at).toString(16).padStart(4, "0")}`).join("");
/** Return a compact JSON text with escapes for invisible characters: the same value, in one line. */
export const visible = (text) => compact(text).replace(UNSEEN, units);

const SHORT = { "\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t" };
const code = (letter) => letter.codePointAt(0).toString(16);
const escaped = (letter) => SHORT[letter] ?? (letter.codePointAt(0) > 0xffff ? `\\U${code(letter).padStart(8, "0")}` : `\\u${code(letter).padStart(4, "0")}`);
/** Return a text as a Python literal. */
export const pythonText = (text) => `"${text.replace(/["\\]|[\p{C}\p{Zl}\p{Zp}]/gu, escaped)}"`;
const NAMES = { true: "True", false: "False", null: "None", ":": ": ", ",": ", " };
/** Return a JSON text as a Python literal. */
export const python = (text) => tokens(text).map((token) => NAMES[token] ?? (token[0] === '"' ? pythonText(JSON.parse(token)) : token)).join("");
