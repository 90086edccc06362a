// The theme makes each row of copy buttons a landmark without a name. A page has many of them: they are none.
new MutationObserver(() => {
  for (const row of document.querySelectorAll("nav.md-code__nav:not([role])")) row.setAttribute("role", "none");
}).observe(document.body, { childList: true, subtree: true });
