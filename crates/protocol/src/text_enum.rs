//! `text_enum!`: an enum whose values have one spelling everywhere: in JSON, in the store and on the command line.

/// Defines an enum with its spellings, and derives `ALL`, `as_str` and `from_text` from them. The spelling is also the one that
/// serde uses; `plain enum` leaves serde out. A spelling is taken as a token: as a `literal` it would be invisible to the derive
/// that documents the API.
#[macro_export]
macro_rules! text_enum {
    ($(#[$meta:meta])* $vis:vis enum $name:ident { $($(#[$about:meta])* $variant:ident = $text:tt),+ $(,)? }) => {
        $(#[$meta])*
        $vis enum $name { $($(#[$about])* #[serde(rename = $text)] $variant,)+ }

        $crate::text_enum!(@spelling $name { $($variant = $text),+ });
    };
    ($(#[$meta:meta])* plain $vis:vis enum $name:ident { $($(#[$about:meta])* $variant:ident = $text:tt),+ $(,)? }) => {
        $(#[$meta])*
        $vis enum $name { $($(#[$about])* $variant,)+ }

        $crate::text_enum!(@spelling $name { $($variant = $text),+ });
    };
    (@spelling $name:ident { $first:ident = $first_text:tt $(, $variant:ident = $text:tt)* }) => {
        impl $name {
            pub const ALL: [Self; [$first_text $(, $text)*].len()] = [Self::$first $(, Self::$variant)*];
            /// All spellings, as the usage of a command shows them: `one|another`.
            #[allow(dead_code, reason = "not every enum is an option of a command")]
            pub const CHOICES: &'static str = concat!($first_text $(, "|", $text)*);

            pub const fn as_str(self) -> &'static str {
                match self { Self::$first => $first_text, $(Self::$variant => $text,)* }
            }

            pub fn from_text(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.as_str() == text)
            }
        }
    };
}

#[cfg(test)]
#[allow(unreachable_pub, reason = "the macro is made for public types")]
mod tests {
    use serde::{Deserialize, Serialize};

    use crate::Json;

    text_enum! {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
        enum Season {
            Spring = "spring",
            MidSummer = "mid-summer",
        }
    }

    #[test]
    fn a_value_is_spelled_the_same_everywhere() {
        for season in Season::ALL {
            assert_eq!(Season::from_text(season.as_str()), Some(season));
            assert_eq!(Json::of(&season).get(), format!("\"{}\"", season.as_str()));
        }
        assert_eq!(Season::from_text("MidSummer"), None);
        assert_eq!(Season::CHOICES, "spring|mid-summer");
    }
}
