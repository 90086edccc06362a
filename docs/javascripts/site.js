// The theme makes each row of copy buttons a landmark without a name. This takes the role away, because a page has many of them.
new MutationObserver(() => {
  for (const row of document.querySelectorAll("nav.md-code__nav:not([role])")) row.setAttribute("role", "none");
}).observe(document.body, { childList: true, subtree: true });
