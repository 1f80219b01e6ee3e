//! Edits TOML files as text: appends or removes our table `[mcp_servers.<name>]` and keeps everything else byte for
//! byte. A file with an unsupported structure is rejected.

use toml::Table;

use super::server_entry::McpServerEntry;

const SECTION: &str = "mcp_servers";

pub(super) fn edit(text: &str, name: &str, entry: Option<&McpServerEntry>) -> Result<String, String> {
    let before: Table = toml::from_str(text).map_err(|error| format!("it isn't valid TOML: {error}"))?;
    let mut edited = without(text, name);
    if let Some(entry) = entry {
        if !edited.is_empty() && !edited.ends_with('\n') {
            edited.push('\n');
        }
        if !edited.is_empty() {
            edited.push('\n');
        }
        edited.push_str(&table(name, entry));
    }
    // Safety check: the removed lines may have been part of something else, such as a multi-line string or inline
    // table.
    let after: Table = toml::from_str(&edited).map_err(|_| by_hand())?;
    let is_there = server(&after, name).is_some();
    if others(before, name) != others(after, name) || is_there != entry.is_some() {
        return Err(by_hand());
    }
    Ok(edited)
}

fn by_hand() -> String {
    format!("the structure of its `{SECTION}` can't be edited automatically; edit it by hand")
}

fn table(name: &str, entry: &McpServerEntry) -> String {
    let quoted = |text: &String| toml::Value::from(text.as_str()).to_string();
    let args: Vec<_> = entry.args.iter().map(quoted).collect();
    let mut table = format!("[{SECTION}.{name}]\ncommand = {}\nargs = [{}]\n", quoted(&entry.command), args.join(", "));
    if !entry.env.is_empty() {
        let env: Vec<_> = entry.env.iter().map(|(name, value)| format!("{name} = {}", quoted(value))).collect();
        table.push_str(&format!("env = {{ {} }}\n", env.join(", ")));
    }
    table
}

/// The text without our table and its subtables.
fn without(text: &str, name: &str) -> String {
    let (own, below) = (format!("[{SECTION}.{name}]"), format!("[{SECTION}.{name}."));
    let mut kept = String::new();
    let mut cutting = false;
    for line in text.split_inclusive('\n') {
        let header = line.trim();
        if header.starts_with('[') {
            let was_cutting = cutting;
            cutting = header == own || header.starts_with(&below);
            // Also remove the blank line that we added before our table.
            if cutting && !was_cutting && kept.ends_with("\n\n") {
                kept.pop();
            }
        }
        if !cutting {
            kept.push_str(line);
        }
    }
    if kept == "\n" { String::new() } else { kept }
}

fn server<'a>(table: &'a Table, name: &str) -> Option<&'a toml::Value> {
    table.get(SECTION)?.get(name)
}

/// The table without our entry.
fn others(mut table: Table, name: &str) -> Table {
    if let Some(servers) = table.get_mut(SECTION).and_then(toml::Value::as_table_mut) {
        servers.remove(name);
        if servers.is_empty() {
            table.remove(SECTION);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> McpServerEntry {
        McpServerEntry {
            command: "/usr/bin/attache".to_owned(),
            args: vec!["mcp".to_owned()],
            env: vec![("A2A_HOME".to_owned(), "/a \"b\"".to_owned())],
        }
    }

    const OWN: &str =
        "[mcp_servers.attache]\ncommand = \"/usr/bin/attache\"\nargs = [\"mcp\"]\nenv = { A2A_HOME = '/a \"b\"' }\n";

    #[test]
    fn adding_and_removing_our_table_keeps_the_rest() {
        let others = "# mine\nmodel = \"o\"   # best\n\n[mcp_servers.other]\ncommand = \"x\"\n";
        let with = edit(others, "attache", Some(&entry())).unwrap();
        assert_eq!(with, format!("{others}\n{OWN}"));
        assert_eq!(edit(&with, "attache", Some(&entry())).unwrap(), with);
        assert_eq!(edit(&with, "attache", None).unwrap(), others);
        assert_eq!(edit(others, "attache", None).unwrap(), others);
        assert_eq!(edit("", "attache", Some(&entry())).unwrap(), OWN);
        assert_eq!(edit(OWN, "attache", None).unwrap(), "");
    }

    #[test]
    fn an_older_entry_is_replaced_anywhere_in_the_file() {
        let before =
            "[mcp_servers.attache]\ncommand = \"old\"\n[mcp_servers.attache.env]\nA = \"1\"\n\n[other]\nx = 1\n";
        let with = edit(before, "attache", Some(&entry())).unwrap();
        assert_eq!(with, format!("[other]\nx = 1\n\n{OWN}"));
    }

    #[test]
    fn an_unsupported_structure_is_rejected() {
        for odd in [
            "mcp_servers = { attache = { command = \"x\" } }\n",
            "mcp_servers.attache.command = \"x\"\n",
            "text = '''\n[mcp_servers.attache]\n'''\n",
            "[mcp_servers]\nattache = { command = \"x\" }\n",
            "not toml",
        ] {
            assert!(edit(odd, "attache", Some(&entry())).is_err(), "{odd}");
        }
    }
}
