// Shows the deliveries, and asks for new ones each second.
const rows = document.getElementById("rows"), state = document.getElementById("state");
let shown = "", first = true;

function cells(delivery) {
  const source = /\/channels\/([^/]+)$/.exec(delivery.headers["ce-source"] ?? "");
  return [
    new Date(delivery.at).toLocaleTimeString([], { hour12: false }) + delivery.at.slice(19, 23),
    delivery.id ?? "none: not from Tocsin",
    source ? source[1] : "",
    delivery.attempt ?? "",
    delivery.late_ms === null ? "" : `${delivery.late_ms} ms`,
    String(delivery.status),
    delivery.body,
  ];
}

function row(delivery, fresh) {
  const line = document.createElement("tr");
  if (fresh) line.className = "fresh";
  for (const text of cells(delivery)) line.insertCell().textContent = text;
  if (delivery.status >= 300) line.cells[5].className = "refused";
  return line;
}

async function look() {
  try {
    const answer = await fetch(location.pathname, { headers: { accept: "application/json" }, cache: "no-store" });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const text = await answer.text();
    if (text !== shown) {
      const before = new Set(shown === "" ? [] : JSON.parse(shown).map((each) => JSON.stringify(each)));
      const found = JSON.parse(text).reverse();
      rows.replaceChildren(...found.map((each) => row(each, !first && !before.has(JSON.stringify(each)))));
      state.textContent = found.length === 0 ? "Nothing has arrived yet." : `${found.length} shown.`;
      shown = text;
    }
    first = false;
  } catch (error) {
    state.textContent = `The service does not answer (${error.message}). This page tries again.`;
    shown = "";
    first = true;
  }
  setTimeout(look, 1000);
}

look();
