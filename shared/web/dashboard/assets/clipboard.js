// Copies texts.

import { tell } from "./dom.js";

/** Copy a text. Without access to the clipboard, select it where it is shown. */
export async function copyText(text, shown) {
  try {
    await navigator.clipboard.writeText(text);
    tell("Copied.");
  } catch (error) {
    if (!(error instanceof DOMException || error instanceof TypeError)) throw error;
    getSelection().selectAllChildren(shown);
    tell("This browser does not let the page copy. The text is selected: press Ctrl+C.");
  }
}
