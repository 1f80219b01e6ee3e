//! The results per host, one file each, and the table in docs/hosts.md that is generated from them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use serde::{Deserialize, Serialize};

use super::{device::HostDevice, programs::HostProgram};

/// One host in the matrix.
#[derive(Debug, Serialize, Deserialize)]
pub struct MatrixRow {
    host: String,
    version: String,
    /// The checks in order, with their duration in seconds.
    seen: Vec<(String, f64)>,
}

/// Markers around the table in the document.
const BEGIN: &str = "<!-- matrix: written by ./test --agents -->";
const END: &str = "<!-- end of matrix -->";

// === impl MatrixRow ===

impl MatrixRow {
    /// The version that the device reports to the hub.
    pub fn of(program: &HostProgram, device: &HostDevice) -> Self {
        let output = device.home.attache(&["doctor", "--json"]).json();
        let hosts = output["hosts"].as_array().cloned().unwrap_or_default();
        let own = hosts.iter().find(|host| host["preset"] == program.kind);
        let version = own.and_then(|host| host["version"].as_str()).unwrap_or("unknown").to_owned();
        Self { host: program.kind.to_owned(), version, seen: Vec::new() }
    }

    /// Runs one check with the host; it enters the matrix only if it passes.
    pub fn took<T>(&mut self, what: &str, act: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let done = act();
        self.seen.push((what.to_owned(), begun.elapsed().as_secs_f64()));
        done
    }

    pub fn keep(&self) {
        let folder = folder();
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{}.json", self.host)), serde_json::to_vec_pretty(self).unwrap()).unwrap();
    }
}

/// Runs after the hosts (`./test --agents`). Otherwise the document stays unchanged.
#[test]
#[ignore = "writes docs/hosts.md after a run of the hosts; ./test --agents does it"]
fn the_matrix_in_the_document_matches_the_results() {
    let rows: Vec<MatrixRow> = rows();
    assert!(!rows.is_empty(), "no host was tried: run ./test --agents");
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/hosts.md");
    let text = fs::read_to_string(&document).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("docs/hosts.md has a place for the matrix");
    let (_, after) = rest.split_once(END).expect("the place for the matrix has an end");
    fs::write(&document, format!("{before}{BEGIN}\n{}{END}{after}", table(&rows))).unwrap();
}

fn rows() -> Vec<MatrixRow> {
    let files = fs::read_dir(folder()).into_iter().flatten().flatten();
    let rows = files.map(|file| serde_json::from_slice::<MatrixRow>(&fs::read(file.path()).unwrap()).unwrap());
    rows.map(|row| (row.host.clone(), row)).collect::<BTreeMap<_, _>>().into_values().collect()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("hosts-matrix")
}

fn table(rows: &[MatrixRow]) -> String {
    let columns = ["task", "deny", "our tools", "cancel", "runtime killed", "adapter killed", "no model"];
    let mut text = format!("| host | version | {} |\n|---|---|{}\n", columns.join(" | "), "---|".repeat(columns.len()));
    for row in rows {
        let cell = |column: &&str| {
            let seen = row.seen.iter().find(|(what, _)| what == column);
            seen.map_or_else(|| "–".to_owned(), |(_, seconds)| format!("✓ {seconds:.1} s"))
        };
        let cells: Vec<String> = columns.iter().map(cell).collect();
        text.push_str(&format!("| `{}` | {} | {} |\n", row.host, row.version, cells.join(" | ")));
    }
    text
}

#[test]
fn a_column_without_results_is_empty() {
    let row = MatrixRow { host: "x".to_owned(), version: "1.2".to_owned(), seen: vec![("cancel".to_owned(), 1.25)] };
    let expected = "| host | version | task | deny | our tools | cancel | runtime killed | adapter killed | no model |\n\
                    |---|---|---|---|---|---|---|---|---|\n| `x` | 1.2 | – | – | – | ✓ 1.2 s | – | – | – |\n";
    assert_eq!(table(&[row]), expected);
}
