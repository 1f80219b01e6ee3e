// Copy buttons: hidden unless the clipboard is available.
function reveal(root) {
  if (!navigator.clipboard) return;
  for (const button of root.querySelectorAll("[data-copy][hidden], [data-copy-from][hidden]")) button.hidden = false;
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest?.("[data-copy], [data-copy-from]");
  if (!button) return;
  const text = button.dataset.copy ?? document.getElementById(button.dataset.copyFrom)?.textContent ?? "";
  try {
    await navigator.clipboard.writeText(text);
    button.classList.add("did");
    setTimeout(() => button.classList.remove("did"), 1500);
  } catch {
    // Without permission, the user can still select the text.
  }
});

reveal(document);
new MutationObserver(() => reveal(document)).observe(document.body, { childList: true, subtree: true });
