//! Defines the parts of the store. The signature of a method stands in its part and in the two implementations, nowhere else.

/// A trait, and the [layer](crate::layer) of the same methods. Methods that don't wait are in a second block.
macro_rules! store_part {
    (
        $(#[$about:meta])*
        pub trait $part:ident $(: $first:ident $(+ $bound:ident)*)?, layer $layer:ident {
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

        /// The methods of a [layer](crate::layer) over this part.
        #[cfg(feature = "conformance")]
        #[::async_trait::async_trait]
        pub trait $layer: $crate::layer::Layer {
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

        #[cfg(feature = "conformance")]
        #[::async_trait::async_trait]
        impl<L: $crate::layer::WholeLayer> $part for L {
            $($(
                fn $method_at_once(&self $(, $argument_at_once: $type_at_once)*) $(-> $answer_at_once)? {
                    $layer::$method_at_once(self $(, $argument_at_once)*)
                }
            )*)?
            $(
                async fn $method(&self $(, $argument: $type)*) $(-> $answer)? {
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
