// Copies texts.

/** Copy a text. Without access to the clipboard, select it where it is shown. Return a sentence about what was done. */
export async function copyText(text, shown) {
  try {
    await navigator.clipboard.writeText(text);
    return "Copied.";
  } catch (error) {
    if (!(error instanceof DOMException || error instanceof TypeError)) throw error;
    getSelection().selectAllChildren(shown);
    return "This browser does not let the page copy. The text is selected: press Ctrl+C.";
  }
}
