// Stores the theme in a cookie, so that the server renders the next page with it.
for (const input of document.querySelectorAll(".theme input")) {
  input.addEventListener("change", () => {
    const theme = input.value;
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    const secure = location.protocol === "https:" ? "; Secure" : "";
    document.cookie = `theme=${theme}; Path=/; Max-Age=31536000; SameSite=Strict${secure}`;
  });
}
