//! Operations of the API: handlers whose path, method and documentation stand once, in their `#[utoipa::path]`.

use utoipa::openapi::{ContentBuilder, PathItem, Ref, RefOr, ResponseBuilder, path::Operation};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

use crate::Handle;

/// Handlers with the document that describes them.
pub(crate) type Operations = OpenApiRouter<Handle>;

/// Defines `routes()` with these handlers. The name of an operation is that of its file and its handler.
macro_rules! operations {
    ($($handler:path),+ $(,)?) => {
        pub(in crate::surface) fn routes() -> $crate::surface::operations::Operations {
            $crate::surface::operations::Operations::default()$(.routes($crate::surface::operations::complete(
                module_path!(),
                stringify!($handler),
                utoipa_axum::routes!($handler),
            )))+
        }
    };
}

/// Adds the name of the operation, and the response that every operation may have.
pub(crate) fn complete(
    file: &str,
    handler: &str,
    (schemas, mut paths, router): UtoipaMethodRouter<Handle>,
) -> UtoipaMethodRouter<Handle> {
    let last = |path: &str| path.rsplit("::").next().unwrap_or_default().trim().to_owned();
    for operation in paths.paths.values_mut().flat_map(operations_of) {
        operation.operation_id = Some(format!("{}_{}", last(file), last(handler)));
        for response in operation.responses.responses.values_mut() {
            if let RefOr::T(response) = response
                && response.description.is_empty()
            {
                "Done".clone_into(&mut response.description);
            }
        }
        let body = ContentBuilder::new().schema(Some(Ref::from_schema_name("ErrorBody"))).build();
        let error = ResponseBuilder::new()
            .description("Error: a code from docs/errors.md, a message and a hint")
            .content("application/json", body)
            .build();
        operation.responses.responses.insert("default".to_owned(), error.into());
    }
    (schemas, paths, router)
}

fn operations_of(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete].into_iter().flatten()
}
