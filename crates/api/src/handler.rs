//! Functions that answer operations, with the operations' types erased: what routes of a server hold.

use std::collections::BTreeMap;
use std::pin::Pin;

use http::{HeaderValue, Method, Response, StatusCode, header};
use serde_json::{Map, Value};

use super::{CallArguments, ErrorBody, Info, Operation};

/// What most answers fit into, in bytes.
const USUAL_ANSWER_BYTES: usize = 512;

/// A future that can be kept in a table.
pub type HandlerFuture<E> = Pin<Box<dyn Future<Output = Result<Vec<u8>, E>> + Send>>;
type ErasedHandler<C, E> = Box<dyn Fn(C, Map<String, Value>) -> HandlerFuture<E> + Send + Sync>;

/// A handler with its types erased: arguments in, JSON out.
pub struct OperationHandler<C, E> {
    /// What it answers.
    pub info: &'static Info,
    answer: ErasedHandler<C, E>,
}

/// Why an operation fails before or after its handler.
pub trait HandlerError: Send + 'static {
    /// The arguments are those of the table, and not of the operation's type.
    fn invalid_arguments(error: &serde_json::Error) -> Self;
    /// The result is no JSON.
    fn unexpected(error: &serde_json::Error) -> Self;
}

/// The handler of an operation; the operation's types end here.
pub fn on<O, C, E, F>(handler: impl Fn(C, O) -> F + Send + Sync + 'static) -> OperationHandler<C, E>
where
    O: Operation,
    E: HandlerError,
    F: Future<Output = Result<O::Output, E>> + Send + 'static,
{
    let answer = move |context, arguments| -> HandlerFuture<E> {
        match O::from_arguments(&mut CallArguments(arguments)) {
            Ok(operation) => {
                let reply = handler(context, operation);
                Box::pin(async move { serialize_output(&reply.await?) })
            }
            Err(error) => Box::pin(std::future::ready(Err(E::invalid_arguments(&error)))),
        }
    };
    OperationHandler { info: &O::INFO, answer: Box::new(answer) }
}

fn serialize_output<T: serde::Serialize, E: HandlerError>(output: &T) -> Result<Vec<u8>, E> {
    let mut body = Vec::with_capacity(USUAL_ANSWER_BYTES);
    serde_json::to_writer(&mut body, output).map_err(|error| E::unexpected(&error))?;
    Ok(body)
}

impl<C, E> OperationHandler<C, E> {
    /// Performs the operation.
    pub fn perform_operation(&self, context: C, arguments: Map<String, Value>) -> HandlerFuture<E> {
        (self.answer)(context, arguments)
    }
}

/// All that one path template answers.
pub struct PathOperations<C, E> {
    handlers: Vec<OperationHandler<C, E>>,
    /// The names of its methods, as in `Allow`.
    pub methods: String,
}

impl<C, E> PathOperations<C, E> {
    /// The handlers by their path templates.
    pub fn by_template(handlers: Vec<OperationHandler<C, E>>) -> BTreeMap<&'static str, Self> {
        let mut templates: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for handler in handlers {
            templates.entry(handler.info.path).or_default().push(handler);
        }
        templates.into_iter().map(|(path, handlers)| (path, Self::new(handlers))).collect()
    }

    fn new(handlers: Vec<OperationHandler<C, E>>) -> Self {
        let mut methods: Vec<_> = handlers.iter().map(|one| one.info.method.as_str()).collect();
        if methods.contains(&"GET") {
            methods.push("HEAD");
        }
        Self { methods: methods.join(", "), handlers }
    }

    /// What answers a method; `HEAD` is `GET` without the body.
    pub fn handler_for(&self, method: &Method) -> Option<&OperationHandler<C, E>> {
        let method = if method == Method::HEAD { "GET" } else { method.as_str() };
        self.handlers.iter().find(|handler| handler.info.method.as_str() == method)
    }
}

/// The answer to an operation that succeeded.
pub fn success_response<B: From<Vec<u8>>>(status: u16, body: Vec<u8>) -> Response<B> {
    if status != StatusCode::NO_CONTENT.as_u16() {
        return json_response(status, body);
    }
    let mut empty = Response::new(B::from(Vec::new()));
    *empty.status_mut() = StatusCode::NO_CONTENT;
    empty
}

/// The response that says what is wrong.
pub fn error_response<B: From<Vec<u8>>>(body: &ErrorBody) -> Response<B> {
    // An error body holds nothing that JSON could not.
    json_response(body.status_code, serde_json::to_vec(body).unwrap_or_default())
}

/// An answer with a JSON body.
pub fn json_response<B: From<Vec<u8>>>(status: u16, body: Vec<u8>) -> Response<B> {
    let mut response = Response::new(B::from(body));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or_default();
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
