// The offline page: tries again when the network is back, and whenever the person asks.
const again = () => location.reload();
document.getElementById("again")?.addEventListener("click", again);
addEventListener("online", again);
