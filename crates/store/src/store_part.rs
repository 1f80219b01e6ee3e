//! Defines the parts of the store. The signature of a method stands in its part and in the two implementations, nowhere else.

/// A trait, the [layer](crate::layer) of the same methods, and a list of them. Methods that don't wait are in a second block.
macro_rules! store_part {
    (
        $(#[$about:meta])*
        pub trait $part:ident $(: $first:ident $(+ $bound:ident)*)?, layer $layer:ident, call $call:ident {
            $(
                $(#[$doc:meta])*
                async fn $method:ident(&self $(, $argument:ident: $type:ty)* $(,)?) $(-> $answer:ty)?;
            )*
        }
        $(at once {
            $(
                $(#[$doc_at_once:meta])*
                fn $method_at_once:ident(&self $(, $argument_at_once:ident: $type_at_once:ty)*) $(-> $answer_at_once:ty)?;
            )*
        })?
    ) => {
        $(#[$about])*
        #[::async_trait::async_trait]
        pub trait $part: $($first + $($bound +)*)? Send + Sync {
            $($(
                $(#[$doc_at_once])*
                fn $method_at_once(&self $(, $argument_at_once: $type_at_once)*) $(-> $answer_at_once)?;
            )*)?
            $(
                $(#[$doc])*
                async fn $method(&self $(, $argument: $type)*) $(-> $answer)?;
            )*
        }

        /// The methods of this part, except those that don't wait.
        #[allow(non_camel_case_types, reason = "named after the methods")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $call {
            $($method),*
        }

        /// The methods of a [layer](crate::layer) over this part.
        #[::async_trait::async_trait]
        pub trait $layer: $crate::layer::Layer {
            /// Whether a method may be called.
            fn admit(&self, _call: $call) -> $crate::Result<()> {
                Ok(())
            }

            $($(
                fn $method_at_once(&self $(, $argument_at_once: $type_at_once)*) $(-> $answer_at_once)? {
                    self.inner().$method_at_once($($argument_at_once),*)
                }
            )*)?
            $(
                async fn $method(&self $(, $argument: $type)*) $(-> $answer)? {
                    self.inner().$method($($argument),*).await
                }
            )*
        }

        #[::async_trait::async_trait]
        impl<L: $crate::layer::WholeLayer> $part for L {
            $($(
                fn $method_at_once(&self $(, $argument_at_once: $type_at_once)*) $(-> $answer_at_once)? {
                    $layer::$method_at_once(self $(, $argument_at_once)*)
                }
            )*)?
            $(
                async fn $method(&self $(, $argument: $type)*) $(-> $answer)? {
                    if let Err(refusal) = $layer::admit(self, $call::$method) {
                        return $crate::layer::Refusable::refused(refusal);
                    }
                    self.before(stringify!($method));
                    let answer = $layer::$method(self $(, $argument)*).await;
                    self.after(stringify!($method)).await;
                    answer
                }
            )*
        }
    };
}

pub(crate) use store_part;
