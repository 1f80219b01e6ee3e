//! The text catalogue: every text of the console, its name beside its sentence in every language.
//!
//! A page gets the [`Text`] of the request's language once and passes it on as `t`.

use std::fmt::Display;

use axum::http::{HeaderMap, header};

use crate::{
    headers::quality,
    session::cookie,
    view::html::{Markup, ToMarkup},
};

/// Declares a table of texts:
///
/// - `name: "…"` is a field.
/// - `name(a, b): "… {a} … {b}"` is a method that returns plain text.
/// - `name(n): "{n} run" | "{n} runs"` takes the form that fits the first argument.
/// - `name{a, b}: "…"` is a method that returns markup. Text in backticks is shown as code.
/// - `name[a]: "…"` is a field whose placeholders a script fills.
///
/// Every English text is followed by `zh "…"`, the Chinese one, which needs no plural form. A text without it fails the
/// build, as does a placeholder that isn't listed, or a listed one that is missing from a text.
macro_rules! texts {
    ($(#[$doc:meta])* $table:ident $(+ $more:ident)?: $($name:ident $(($($plain:ident),+))? $({$($markup:ident),+})?
        $([$($script:ident),+])?: $en:literal $(| $many:literal)? zh $zh:literal;)*) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $table {
            language: $crate::text::Language,
            $(pub(crate) $name: texts!(@type $(($($plain)+))? $({$($markup)+})?),)*
            $(more: $more,)?
        }

        impl $table {
            pub(crate) const fn of(language: $crate::text::Language) -> Self {
                Self {
                    language,
                    $($name: texts!(@value [$(($($plain)+))? $({$($markup)+})?]
                        language.pick($en, $zh), language.pick($crate::text::last(&[$en $(, $many)?]), $zh)),)*
                    $(more: $more::of(language),)?
                }
            }

            $(texts!(@method $name $(($($plain),+))? $({$($markup),+})? $($many)?);)*
        }

        $(impl std::ops::Deref for $table {
            type Target = $more;

            fn deref(&self) -> &$more {
                &self.more
            }
        })?

        const _: () = {
            $($crate::text::check(
                concat!("the placeholders of `", stringify!($name), "` aren't the listed ones"),
                &[$($(stringify!($plain),)+)? $($(stringify!($markup),)+)? $($(stringify!($script),)+)?],
                &[$($many)?],
                &[$en $(, $many)?, $zh],
            );)*
        };
    };

    (@type) => { &'static str };
    (@type $arguments:tt) => { $crate::text::Sentence };

    (@value [] $one:expr, $many:expr) => { $one };
    (@value [$arguments:tt] $one:expr, $many:expr) => { $crate::text::Sentence { one: $one, many: $many } };

    (@method $name:ident) => {};
    (@method $name:ident ($($plain:ident),+)) => {
        pub(crate) fn $name(&self, $($plain: impl std::fmt::Display),+) -> String {
            $crate::text::fill(self.$name.one, &[$((stringify!($plain), &$plain)),+])
        }
    };
    (@method $name:ident ($n:ident $(, $plain:ident)*) $many:literal) => {
        pub(crate) fn $name(&self, $n: u64 $(, $plain: impl std::fmt::Display)*) -> String {
            let form = self.language.plural(self.$name, $n);
            $crate::text::fill(form, &[(stringify!($n), &$n) $(, (stringify!($plain), &$plain))*])
        }
    };
    (@method $name:ident {$($markup:ident),+}) => {
        pub(crate) fn $name(&self, $($markup: impl $crate::view::html::ToMarkup),+) -> $crate::view::html::Markup {
            $crate::text::markup(self.$name.one, &[$((stringify!($markup), &$markup)),+])
        }
    };
}

mod admin;
mod pages;

pub(crate) use pages::Text;

/// A language that texts can be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    En,
    Zh,
}

/// A sentence with placeholders. Only the methods of its table can read it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sentence {
    one: &'static str,
    many: &'static str,
}

// === impl Language ===

impl Language {
    /// The first one is the default.
    pub(crate) const ALL: [Self; 2] = [Self::En, Self::Zh];

    /// The cookie with the language that a person chose in this browser.
    pub(crate) const COOKIE: &str = "language";

    /// The language that was chosen in this browser, or else the one that it prefers.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        Self::chosen(headers).unwrap_or_else(|| Self::preferred(headers))
    }

    pub(crate) fn chosen(headers: &HeaderMap) -> Option<Self> {
        cookie(headers, Self::COOKIE).and_then(Self::from_tag)
    }

    /// The language with the highest quality value. The first of equals wins.
    fn preferred(headers: &HeaderMap) -> Self {
        let wanted = headers.get_all(header::ACCEPT_LANGUAGE).iter().filter_map(|value| value.to_str().ok());
        let mut best = (Self::ALL[0], 0);
        for part in wanted.flat_map(|value| value.split(',')) {
            let mut members = part.split(';');
            if let Some(language) = members.next().and_then(Self::from_tag)
                && let quality = quality(members)
                && quality > best.1
            {
                best = (language, quality);
            }
        }
        best.0
    }

    /// The language of a tag such as `zh-Hans-CN`.
    pub(crate) fn from_tag(tag: &str) -> Option<Self> {
        match tag.trim().split('-').next()?.to_ascii_lowercase().as_str() {
            "en" => Some(Self::En),
            "zh" => Some(Self::Zh),
            _ => None,
        }
    }

    pub(crate) fn tag(self) -> &'static str {
        self.text().lang
    }

    /// Its name, in the language itself.
    pub(crate) fn own_name(self) -> &'static str {
        self.text().language_name
    }

    pub(crate) fn text(self) -> &'static Text {
        static EN: Text = Text::of(Language::En);
        static ZH: Text = Text::of(Language::Zh);
        match self {
            Self::En => &EN,
            Self::Zh => &ZH,
        }
    }

    pub(crate) const fn pick(self, en: &'static str, zh: &'static str) -> &'static str {
        match self {
            Self::En => en,
            Self::Zh => zh,
        }
    }

    /// The form of a sentence for a count.
    const fn plural(self, sentence: Sentence, count: u64) -> &'static str {
        match (self, count) {
            (Self::En, 1) => sentence.one,
            (Self::En | Self::Zh, _) => sentence.many,
        }
    }
}

/// The texts in the language of the request.
pub(crate) fn for_request(headers: &HeaderMap) -> &'static Text {
    Language::of(headers).text()
}

/// Fills the placeholders with plain text.
fn fill(template: &str, values: &[(&str, &dyn Display)]) -> String {
    let mut filled = String::with_capacity(template.len() + 32);
    walk(template, |words, placeholder| {
        filled.push_str(words);
        if let Some((_, value)) = values.iter().find(|(name, _)| *name == placeholder) {
            filled.push_str(&value.to_string());
        }
    });
    filled
}

/// Fills the placeholders with markup.
fn markup(template: &str, values: &[(&str, &dyn ToMarkup)]) -> Markup {
    let mut html = String::with_capacity(template.len() + 64);
    walk(template, |words, placeholder| {
        html.push_str(&Markup::marked(words).to_string());
        if let Some((_, value)) = values.iter().find(|(name, _)| *name == placeholder) {
            value.write(&mut html);
        }
    });
    Markup::trusted(html)
}

/// Calls `each` with every stretch of text and the name of the placeholder after it, which is empty at the end.
fn walk<'a>(template: &'a str, mut each: impl FnMut(&'a str, &'a str)) {
    let mut rest = template;
    while let Some((words, (name, after))) =
        rest.split_once('{').and_then(|(words, after)| Some((words, after.split_once('}')?)))
    {
        each(words, name);
        rest = after;
    }
    each(rest, "");
}

const fn last(forms: &[&'static str]) -> &'static str {
    forms[forms.len() - 1]
}

/// Fails the build with `problem` unless every text has exactly these placeholders. A plural form may leave out the
/// first one, the count.
const fn check(problem: &str, names: &[&str], plural: &[&str], texts: &[&str]) {
    let optional = !plural.is_empty() as u32;
    let (mut index, all) = (0, (1_u32 << names.len()) - 1);
    while index < texts.len() {
        let (text, mut at, mut found) = (texts[index].as_bytes(), 0, 0_u32);
        while at < text.len() {
            if text[at] == b'{' {
                let mut name = 0;
                while name < names.len() && !stands_at(text, at + 1, names[name].as_bytes()) {
                    name += 1;
                }
                assert!(name < names.len(), "{}", problem);
                found |= 1 << name;
            }
            at += 1;
        }
        assert!(found >> optional == all >> optional, "{}", problem);
        index += 1;
    }
}

/// Whether `text` has `name` and a closing brace at this position.
const fn stands_at(text: &[u8], at: usize, name: &[u8]) -> bool {
    let mut index = 0;
    while index < name.len() {
        if at + index >= text.len() || text[at + index] != name[index] {
            return false;
        }
        index += 1;
    }
    at + index < text.len() && text[at + index] == b'}'
}

#[cfg(test)]
mod tests {
    use super::*;

    texts! {
        /// Texts in both languages.
        BilingualText:
        greeting(name, place): "{name} from {place}" zh "来自{place}的{name}";
        runs(n, agent): "{agent} has 1 run" | "{agent} has {n} runs" zh "{agent}有{n}个运行";
        command{who}: "Run `a < b` on {who}" zh "在 {who} 上运行 `a < b`";
        script[left]: "{left} left" zh "剩余 {left}";
    }

    const EN: BilingualText = BilingualText::of(Language::En);
    const ZH: BilingualText = BilingualText::of(Language::Zh);

    #[test]
    fn a_language_orders_the_placeholders() {
        assert_eq!(EN.greeting("{place}", 2), "{place} from 2");
        assert_eq!(ZH.greeting("Ada", "{name}"), "来自{name}的Ada");
        assert_eq!([EN.script, ZH.script], ["{left} left", "剩余 {left}"]);
        let html = "在 <bdi>&lt;b&gt;{who}</bdi> 上运行 <code>a &lt; b</code>";
        assert_eq!(ZH.command("<b>{who}").to_string(), html);
    }

    #[test]
    fn the_language_decides_the_plural_form() {
        assert_eq!([0, 1, 2].map(|n| EN.runs(n, "a")), ["a has 0 runs", "a has 1 run", "a has 2 runs"]);
        assert_eq!([1, 2].map(|n| ZH.runs(n, "a")), ["a有1个运行", "a有2个运行"]);
    }

    #[test]
    fn a_text_needs_exactly_its_placeholders() {
        let accepted = |names: &[&str], plural: &[&str], text: &str| {
            std::panic::catch_unwind(|| check("", names, plural, &[text])).is_ok()
        };
        assert!(accepted(&["a", "b"], &[], "{b} {a}") && accepted(&["n"], &["2"], "1 run") && accepted(&[], &[], ""));
        for (names, text) in [(&["a"][..], "x"), (&[], "{a}"), (&["a"], "{a} {b}"), (&["ab"], "{a}"), (&["a"], "{a")] {
            assert!(!accepted(names, &[], text), "{text}");
        }
    }

    #[test]
    fn the_browsers_preference_decides_by_quality() {
        for (wanted, lang) in [
            ("", "en"),
            ("xx-YY;q=0.9, en-GB;q=0.5", "en"),
            ("xx-YY", "en"),
            ("zh-CN,zh;q=0.9,en;q=0.8", "zh-CN"),
            ("ZH-hant-TW", "zh-CN"),
            ("en;q=0.8, zh;q=0.9", "zh-CN"),
            ("en;q=0.8,zh ; q=0.85", "zh-CN"),
            ("zh;q=0.5, en", "en"),
            ("zh, en", "zh-CN"),
            ("en, zh", "en"),
            ("zh;q=0", "en"),
            ("*, zh;q=0.1", "zh-CN"),
            ("fr, zh;q=0.1, en;q=0.05", "zh-CN"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_LANGUAGE, wanted.parse().unwrap());
            assert_eq!(for_request(&headers).lang, lang, "{wanted}");
        }
        assert_eq!(for_request(&HeaderMap::new()).lang, "en");
    }

    #[test]
    fn a_chosen_language_takes_precedence() {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_LANGUAGE, "en".parse().unwrap());
        for (cookie, lang) in [("language=zh-CN", "zh-CN"), ("theme=dark; language=en", "en"), ("language=xx", "en")] {
            headers.insert(header::COOKIE, cookie.parse().unwrap());
            assert_eq!(for_request(&headers).lang, lang, "{cookie}");
        }
    }
}
