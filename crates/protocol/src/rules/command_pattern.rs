//! Commands that an agent's owner trusts: patterns of words, and which words `*` may stand for.

/// A command as its owner trusts it: words, of which `*` stands for one, and as the last one for any number. It doesn't stand
/// for every word: see [`CommandPattern::covers`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandPattern(Vec<String>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommandPatternError {
    #[error("is not a plain command: words and quotes only, no variables, pipes, redirections or lists")]
    NotPlain,
    #[error("must begin with the name of a program")]
    NoProgram,
    #[error("is too broad: after these words, `*` could match something harmful. Write out the rest of the command")]
    TooOpen,
}

/// Shells that hosts put around every command. Any other path may be a program of the folder.
const SHELLS: [&str; 11] = [
    "sh",
    "bash",
    "zsh",
    "/bin/sh",
    "/bin/bash",
    "/bin/zsh",
    "/usr/bin/sh",
    "/usr/bin/bash",
    "/usr/bin/zsh",
    "/usr/local/bin/bash",
    "/usr/local/bin/zsh",
];

/// The folders whose programs are the ones that their names say.
const PROGRAM_FOLDERS: [&str; 4] = ["/bin/", "/usr/bin/", "/usr/local/bin/", "/opt/homebrew/bin/"];

/// What `*` may follow: programs with the words that must come first, each list of words on its own. Whatever plain words
/// come next, these run nothing but what the folder's own project does anyway, and reach no address. `_` is a word that the
/// pattern names. Everything else is refused: a complete list of programs that start others or use the network can't exist.
const OPEN_ENDED: &[(&str, &[&str])] = &[
    ("git", GIT_OPEN_ENDED),
    ("cargo", &["bench", "build", "check", "clippy", "doc", "fmt", "metadata", "nextest run", "test", "tree"]),
    ("go", &["build", "fmt", "list", "test", "vet"]),
    ("make", &["_"]),
    ("gmake", &["_"]),
    ("just", &["_"]),
    ("ninja", &[""]),
    ("npm", &["run", "run-script", "t", "test"]),
    ("pnpm", &["run _", "t", "test"]),
    ("yarn", &["run _", "test"]),
    ("bun", &["run _", "test"]),
    ("python", &["-m black", "-m flake8", "-m isort", "-m mypy", "-m pytest", "-m ruff", "-m unittest"]),
    ("pytest", &[""]),
    ("jest", &[""]),
    ("vitest", &[""]),
    ("mocha", &[""]),
    ("rspec", &[""]),
    ("phpunit", &[""]),
    ("ctest", &[""]),
    ("black", &[""]),
    ("biome", &["_"]),
    ("clang-format", &[""]),
    ("eslint", &[""]),
    ("flake8", &[""]),
    ("gofmt", &[""]),
    ("golangci-lint", &["run"]),
    ("isort", &[""]),
    ("mypy", &[""]),
    ("prettier", &[""]),
    ("pylint", &[""]),
    ("pyright", &[""]),
    ("rubocop", &[""]),
    ("ruff", &["check", "format"]),
    ("rustfmt", &[""]),
    ("shellcheck", &[""]),
    ("shfmt", &[""]),
    ("stylelint", &[""]),
    ("tsc", &[""]),
    ("basename", &[""]),
    ("cat", &[""]),
    ("cmp", &[""]),
    ("cut", &[""]),
    ("diff", &[""]),
    ("dirname", &[""]),
    ("du", &[""]),
    ("echo", &[""]),
    ("file", &[""]),
    ("grep", &[""]),
    ("head", &[""]),
    ("ls", &[""]),
    ("mkdir", &[""]),
    ("pwd", &[""]),
    ("readlink", &[""]),
    ("realpath", &[""]),
    ("rg", &[""]),
    ("sort", &[""]),
    ("stat", &[""]),
    ("tail", &[""]),
    ("test", &[""]),
    ("tree", &[""]),
    ("wc", &[""]),
    ("which", &[""]),
];
/// A remote must be named: git takes an address or a repository in the folder, with hooks of its own, for one.
const GIT_OPEN_ENDED: &[&str] = &[
    "add",
    "blame",
    "branch",
    "cat-file",
    "check-ignore",
    "checkout",
    "cherry-pick",
    "commit",
    "describe",
    "diff",
    "diff-index",
    "diff-tree",
    "fetch _",
    "grep",
    "log",
    "ls-files",
    "ls-tree",
    "merge",
    "merge-base",
    "name-rev",
    "pull _",
    "push _",
    "reflog",
    "reset",
    "restore",
    "rev-list",
    "rev-parse",
    "revert",
    "rm",
    "shortlog",
    "show",
    "show-ref",
    "stash",
    "status",
    "switch",
    "tag",
];
/// Commands of git whose words are what goes to or comes from another machine.
const GIT_NETWORK: [&str; 3] = ["fetch", "pull", "push"];

/// Options that `*` may stand for: none makes its program run, write or obey something that the pattern doesn't name,
/// whatever its value is. `=` at the end: may have a value. `#`: has numbers.
const HARMLESS_OPTIONS: &[(&[&str], &[&[&str]])] = &[
    (&["git", "diff"], &[GIT_PATCH]),
    (&["git", "show"], &[GIT_PATCH, GIT_HISTORY]),
    (&["git", "log"], &[GIT_PATCH, GIT_HISTORY]),
    (
        &["git", "status"],
        &[&["-s", "-b", "-sb", "--short", "--branch", "--porcelain=", "--ignored", "--", "-u", "-uno"]],
    ),
    (&["git", "blame"], &[&["-L", "-L#", "-w", "-e", "-s", "--date=", "--"]]),
    (&["git", "grep"], &[SEARCH, &["--cached", "--untracked", "--and", "--or", "--not", "-p", "-W"]]),
    (&["cargo", "check"], &[CARGO]),
    (&["cargo", "build"], &[CARGO]),
    (&["cargo", "clippy"], &[CARGO, &["-D", "-W", "-A"]]),
    (&["cargo", "fmt"], &[&["--all", "--check", "-p", "--"]]),
    (&["cargo", "test"], &[CARGO, CARGO_TEST]),
    (&["cargo", "nextest", "run"], &[CARGO, CARGO_TEST, &["-E", "--no-tests=", "--retries="]]),
    (&["go", "build"], &[GO]),
    (&["go", "vet"], &[GO]),
    (&["go", "test"], &[GO, GO_TEST]),
    (&["pytest"], &[PYTEST]),
    (&["python", "-m", "pytest"], &[PYTEST]),
    (&["python3", "-m", "pytest"], &[PYTEST]),
    (&["rg"], &[SEARCH, &["-S", "-t", "-g", "--type=", "--glob=", "--files", "--hidden", "--no-ignore"]]),
    (&["grep"], &[SEARCH, &["-r", "-rn", "-rl", "-rni", "-rin", "--include=", "--exclude=", "--exclude-dir="]]),
    (&["ls"], &[&["-1", "-a", "-A", "-h", "-l", "-la", "-al", "-lh", "-lah", "-R", "-t", "-r", "-lt", "-ltr", "--"]]),
    (&["wc"], &[&["-l", "-w", "-c", "-m", "--"]]),
];
const GIT_PATCH: &[&str] = &[
    "-p",
    "-u",
    "-U#",
    "-s",
    "-b",
    "-w",
    "-M",
    "-R",
    "-z",
    "--",
    "--cached",
    "--check",
    "--color=",
    "--diff-filter=",
    "--exit-code",
    "--full-index",
    "--histogram",
    "--ignore-all-space",
    "--ignore-blank-lines",
    "--ignore-space-change",
    "--merge-base",
    "--minimal",
    "--name-only",
    "--name-status",
    "--no-color",
    "--no-ext-diff",
    "--no-patch",
    "--no-renames",
    "--no-textconv",
    "--numstat",
    "--patch",
    "--patience",
    "--quiet",
    "--raw",
    "--shortstat",
    "--staged",
    "--stat=",
    "--summary",
    "--unified=",
    "--word-diff=",
];
const GIT_HISTORY: &[&str] = &[
    "-#",
    "-n",
    "-n#",
    "-i",
    "-S",
    "-G",
    "--abbrev-commit",
    "--after=",
    "--all",
    "--author=",
    "--before=",
    "--date=",
    "--decorate=",
    "--first-parent",
    "--follow",
    "--format=",
    "--graph",
    "--grep=",
    "--max-count=",
    "--merges",
    "--no-decorate",
    "--no-merges",
    "--oneline",
    "--pretty=",
    "--reverse",
    "--since=",
    "--until=",
];
const CARGO: &[&str] = &[
    "-p",
    "-q",
    "-v",
    "-F",
    "-j",
    "-j#",
    "--",
    "--all",
    "--all-features",
    "--all-targets",
    "--bench=",
    "--benches",
    "--bin=",
    "--bins",
    "--color=",
    "--example=",
    "--examples",
    "--exclude=",
    "--features=",
    "--frozen",
    "--jobs=",
    "--keep-going",
    "--lib",
    "--locked",
    "--message-format=",
    "--no-default-features",
    "--offline",
    "--package=",
    "--profile=",
    "--quiet",
    "--release",
    "--test=",
    "--tests",
    "--verbose",
    "--workspace",
];
const CARGO_TEST: &[&str] = &[
    "--doc",
    "--exact",
    "--ignored",
    "--include-ignored",
    "--no-capture",
    "--no-fail-fast",
    "--no-run",
    "--nocapture",
    "--show-output",
    "--skip=",
    "--test-threads=",
];
const GO: &[&str] = &["-race", "-tags=", "-v"];
const GO_TEST: &[&str] = &[
    "-bench=",
    "-benchmem",
    "-count=",
    "-cover",
    "-failfast",
    "-json",
    "-list=",
    "-parallel=",
    "-run=",
    "-short",
    "-skip=",
    "-timeout=",
];
const PYTEST: &[&str] = &[
    "-k",
    "-l",
    "-m",
    "-q",
    "-ra",
    "-rA",
    "-s",
    "-v",
    "-vv",
    "-x",
    "--co",
    "--collect-only",
    "--durations=",
    "--exitfirst",
    "--failed-first",
    "--ff",
    "--last-failed",
    "--lf",
    "--maxfail=",
    "--no-header",
    "--quiet",
    "--tb=",
    "--verbose",
];
const SEARCH: &[&str] = &[
    "-A#",
    "-B#",
    "-C#",
    "-E",
    "-F",
    "-P",
    "-c",
    "-e",
    "-h",
    "-i",
    "-l",
    "-n",
    "-o",
    "-v",
    "-w",
    "--",
    "--count",
    "--files-with-matches",
    "--ignore-case",
    "--line-number",
    "--word-regexp",
];

// === impl CommandPattern ===

impl CommandPattern {
    /// Reads `git diff *`.
    pub fn parse(text: &str) -> Result<Self, CommandPatternError> {
        let parts: Vec<&str> = text.split_ascii_whitespace().collect();
        let [program, rest @ ..] = &parts[..] else { return Err(CommandPatternError::NoProgram) };
        let is_word = |part: &&str| {
            *part == "*" || words(&format!("{program} {part}")).is_some_and(|words| words[1..] == [*part])
        };
        if *program == "*" {
            return Err(CommandPatternError::NoProgram);
        }
        if words(program).is_none_or(|words| words != [*program]) || !rest.iter().all(is_word) {
            return Err(CommandPatternError::NotPlain);
        }
        if let Some(any) = rest.iter().position(|part| *part == "*")
            && !is_open_ended(program, &rest[..any])
        {
            return Err(CommandPatternError::TooOpen);
        }
        Ok(Self(parts.into_iter().map(str::to_owned).collect()))
    }

    pub(super) fn matches(&self, words: &[String]) -> bool {
        let (fixed, is_open) = match self.0.split_last() {
            Some((last, fixed)) if last == "*" => (fixed, true),
            _ => (&self.0[..], false),
        };
        let has_length = if is_open { words.len() >= fixed.len() } else { words.len() == fixed.len() };
        let is_free = |at: usize| self.0.get(at).is_none_or(|wanted| wanted == "*");
        let mut free = words.iter().enumerate().filter(|(at, _)| is_free(*at)).map(|(_, word)| word);
        has_length
            && fixed.iter().zip(words).all(|(wanted, word)| wanted == "*" || wanted == word)
            && free.all(|word| self.covers(word))
    }

    fn reaches_others(&self) -> bool {
        match self.0.first().map(|program| name_of(program)) {
            Some("git") => self.0.get(1).is_some_and(|command| GIT_NETWORK.contains(&&**command)),
            Some("go") => true,
            _ => false,
        }
    }

    /// Whether `*` may stand for this word: an option only if it is known to be harmless, and nothing that leads out of the
    /// folder. What is not known is not covered.
    fn covers(&self, word: &str) -> bool {
        // A leading `:` is how git names what is outside the current folder: `:/`, `:(top)`.
        if word.starts_with(['+', '@', ':']) || leaves_folder(word) {
            return false;
        }
        if self.reaches_others() && !word.starts_with('-') && is_elsewhere(word) {
            return false;
        }
        let of_program = |(start, _): &&(&[&str], _)| {
            self.0.len() >= start.len() && self.0.iter().zip(*start).all(|(part, wanted)| part == wanted)
        };
        match HARMLESS_OPTIONS.iter().find(of_program) {
            Some((_, harmless)) if word.starts_with('-') => harmless.iter().any(|some| is_one_of(some, word)),
            Some(_) => true,
            // Programs set variables this way, and give what they are told to a shell.
            None => !word.starts_with('-') && word.chars().all(|character| is_plain(character) && character != '='),
        }
    }
}

/// Whether `*` may follow these words of a program.
fn is_open_ended(program: &str, before: &[&str]) -> bool {
    let name = match program.rsplit_once('/') {
        Some((folder, name)) if PROGRAM_FOLDERS.iter().any(|known| known.strip_suffix('/') == Some(folder)) => name,
        // A program of the folder may be anything.
        Some(_) => return false,
        None => program,
    };
    // `python3.12` is a Python.
    let name = match name.trim_end_matches(|end: char| end.is_ascii_digit() || end == '.') {
        "python" => "python",
        _ => name,
    };
    let begins = |first: &str| {
        let mut words = before.iter();
        first.split_ascii_whitespace().all(|wanted| match wanted {
            "_" => words.next().is_some_and(|word| !word.starts_with(['-', '+'])),
            wanted => words.next().is_some_and(|word| *word == wanted),
        })
    };
    OPEN_ENDED.iter().any(|(known, first)| *known == name && first.iter().any(|first| begins(first)))
}

/// Whether a word of a command that reaches other machines names one of them, or something else for them than it is here.
fn is_elsewhere(word: &str) -> bool {
    let first = word.split('/').next().unwrap_or_default();
    word.contains(['@', ':']) || (first.contains('.') && !first.chars().all(|character| character == '.'))
}

/// Whether an option is in a list. Neither several in one word nor abbreviations are.
fn is_one_of(options: &[&str], word: &str) -> bool {
    options.iter().any(|option| match (option.strip_suffix('='), option.strip_suffix('#')) {
        (Some(name), _) => word == name || word.starts_with(option),
        (_, Some(name)) => word.strip_prefix(name).is_some_and(|numbers| {
            !numbers.is_empty() && numbers.bytes().all(|byte| byte.is_ascii_digit() || byte == b',')
        }),
        (None, None) => word == *option,
    })
}

/// Whether a word, or what follows a `=` or `:` in it, is a path that leads out of the folder, or an address.
fn leaves_folder(word: &str) -> bool {
    let leaves = |part: &str| part.starts_with(['/', '~']) || part.split('/').any(|name| name == "..");
    word.split(['=', ':']).any(leaves)
}

impl std::fmt::Display for CommandPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

/// The words of a plain command, without the shell that a host puts around it.
pub(super) fn plain(command: &str) -> Option<Vec<String>> {
    let found = words(command)?;
    match &found[..] {
        [shell, option, inner] if SHELLS.contains(&&**shell) && matches!(&**option, "-c" | "-lc") => words(inner),
        _ => Some(found),
    }
}

/// The name of a program without its folder.
fn name_of(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// The words of a plain command. `None` if a shell would do anything but start one program with these words.
fn words(command: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    for character in command.trim_matches([' ', '\t']).chars() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (Some('\''), _) if character != '\n' => word.get_or_insert_default().push(character),
            (Some(_), '$' | '`' | '\\' | '!' | '\n') => return None,
            (Some(_), _) => word.get_or_insert_default().push(character),
            (None, '\'' | '"') => {
                word.get_or_insert_default();
                quote = Some(character);
            }
            (None, ' ' | '\t') => words.extend(word.take()),
            // At the beginning of a word, it is somebody's home.
            (None, '~') => word.as_mut().filter(|word| !word.ends_with([':', '=']))?.push('~'),
            (None, _) if is_plain(character) => word.get_or_insert_default().push(character),
            (None, _) => return None,
        }
    }
    words.extend(word);
    let assigns = words.first().is_none_or(|program| program.is_empty() || program.contains('='));
    (quote.is_none() && !assigns).then_some(words)
}

/// Whether a character stands for itself wherever it is in a word of a shell.
fn is_plain(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-' | '.' | '/' | ',' | ':' | '=' | '@' | '%' | '+' | '^')
}

#[cfg(test)]
mod tests;
