//! Says a statement in PostgreSQL's words. Only what is left of the difference between the two dialects is here: what
//! both understand is written that way in the statement itself.

/// A statement for PostgreSQL.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Translation {
    pub(super) sql: String,
    /// Which of SQLite's placeholders `$1`, `$2` and so on are, counted from 0. PostgreSQL wants no value that it doesn't use.
    pub(super) values: Vec<usize>,
}

/// `?1` becomes `$1`, the column `user` is quoted because it is a keyword there, and SQLite's hints about indexes and
/// the order of joins are left out.
pub(super) fn to_postgres(sql: &str) -> Translation {
    let mut said = String::with_capacity(sql.len() + 16);
    let mut values: Vec<usize> = Vec::new();
    let mut words = SqlTokens(sql).peekable();
    while let Some(word) = words.next() {
        match word {
            "?" => {
                let number = words.next().and_then(|number| number.parse::<usize>().ok());
                let value = number.expect("our placeholders have numbers from 1 on") - 1;
                let place = values.iter().position(|known| *known == value).unwrap_or_else(|| {
                    values.push(value);
                    values.len() - 1
                });
                said.push_str(&format!("${}", place + 1));
            }
            "user" => said.push_str("\"user\""),
            "indexed" => {
                // `indexed by NAME`, or the end of `not indexed`.
                if let Some(before) = said.strip_suffix("not ") {
                    said.truncate(before.len());
                } else {
                    let _ = words.by_ref().filter(|word| !is_space(word)).nth(1);
                }
            }
            "cross" => {
                while words.peek().is_some_and(|word| is_space(word)) {
                    words.next();
                }
            }
            word => said.push_str(word),
        }
    }
    Translation { sql: said, values }
}

fn is_space(word: &str) -> bool {
    word.starts_with(char::is_whitespace)
}

/// Words, quoted texts, runs of white space, and single other characters.
struct SqlTokens<'s>(&'s str);

impl<'s> Iterator for SqlTokens<'s> {
    type Item = &'s str;

    fn next(&mut self) -> Option<&'s str> {
        let first = self.0.chars().next()?;
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let end = if first == '\'' || first == '"' {
            self.0[1..].find(first).map_or(self.0.len(), |end| end + 2)
        } else if is_name(first) {
            self.0.find(|letter| !is_name(letter)).unwrap_or(self.0.len())
        } else if first.is_whitespace() {
            self.0.find(|letter: char| !letter.is_whitespace()).unwrap_or(self.0.len())
        } else {
            first.len_utf8()
        };
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        Some(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_keywords_and_hints_are_translated() {
        for (sqlite, postgres) in [
            (
                "select user, k.user from t where a = ?1 and b = ?2",
                "select \"user\", k.\"user\" from t where a = $1 and b = $2",
            ),
            ("select id from r indexed by r_queue where a = ?1", "select id from r  where a = $1"),
            ("select id from task_runs r not indexed where a", "select id from task_runs r  where a"),
            ("from a cross join b on b.x = a.x", "from a join b on b.x = a.x"),
            ("select 'a user ?1 cross', user_id", "select 'a user ?1 cross', user_id"),
        ] {
            assert_eq!(to_postgres(sqlite).sql, postgres);
        }
    }

    #[test]
    fn placeholders_without_a_use_have_no_value() {
        let expected = Translation { sql: "select $1, $2, $1".to_owned(), values: vec![3, 0] };
        assert_eq!(to_postgres("select ?4, ?1, ?4"), expected);
    }
}
