// Shows the deliveries, and asks for new ones each second.
const MOST = 100; // deliveries shown
const rows = document.getElementById("rows"), state = document.getElementById("state");
let position = ""; // of the latest answer: what arrives after it is new

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

const series = (text) => text.split("-")[0];

async function look() {
  try {
    const answer = await fetch(`${location.pathname}?after=${position}`, { headers: { accept: "application/json" }, cache: "no-store" });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const found = (await answer.json()).reverse();
    const next = answer.headers.get("receiver-position") ?? "";
    // A receiver that was started anew answers with all that it has.
    const goesOn = position !== "" && series(position) === series(next);
    if (!goesOn) rows.replaceChildren();
    if (found.length) {
      for (const each of rows.querySelectorAll(".fresh")) each.className = "";
      rows.prepend(...found.map((each) => row(each, goesOn)));
      while (rows.childElementCount > MOST) rows.lastElementChild.remove();
    }
    position = next;
    const text = rows.childElementCount === 0 ? "Nothing has arrived yet." : `${rows.childElementCount} shown.`;
    if (state.textContent !== text) state.textContent = text;
  } catch (error) {
    state.textContent = `The service does not answer (${error.message}). This page tries again.`;
  }
  setTimeout(look, 1000);
}

look();
