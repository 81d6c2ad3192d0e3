//! Answers to operations: one file per resource, with the names of [`crate::api::remote`].

mod api_keys;
mod backends;
mod bot_users;
mod certificate_authorities;
mod credentials;
mod edges;
mod ip_policies;
mod ip_policy_rules;
mod tunnel_sessions;
mod tunnels;

use std::pin::Pin;

use serde_json::{Map, Value};

use super::context::{Context, Reply};
use super::{Refusal, code};
use crate::api::{Info, Operation};

/// What most answers fit into, in bytes.
const USUAL_ANSWER: usize = 512;

/// A future that can be kept in a table.
pub(super) type Answer = Pin<Box<dyn Future<Output = Result<Vec<u8>, Refusal>> + Send>>;

/// A handler with its types erased: arguments in, JSON out.
pub(super) struct Handler {
    pub info: &'static Info,
    answer: Box<dyn Fn(Context, Map<String, Value>) -> Answer + Send + Sync>,
}

impl Handler {
    /// Performs the operation; the result is empty when there is no body.
    pub fn answer(&self, service: Context, arguments: Map<String, Value>) -> Answer {
        (self.answer)(service, arguments)
    }
}

/// Every handler of the service.
pub(super) fn all() -> Vec<Handler> {
    let resources = [
        api_keys::handlers(),
        ip_policies::handlers(),
        ip_policy_rules::handlers(),
        certificate_authorities::handlers(),
        backends::handlers(),
        edges::handlers(),
        credentials::handlers(),
        bot_users::handlers(),
        tunnels::handlers(),
        tunnel_sessions::handlers(),
    ];
    resources.into_iter().flatten().collect()
}

/// The operations that have a handler, once for each handler.
pub fn operations() -> Vec<&'static Info> {
    all().into_iter().map(|handler| handler.info).collect()
}

/// The handler of an operation; the operation's types end here.
fn on<O, F>(handler: impl Fn(Context, O) -> F + Send + Sync + 'static) -> Handler
where
    O: Operation,
    F: Future<Output = Reply<O>> + Send + 'static,
{
    let answer = move |service, arguments| -> Answer {
        match read(arguments) {
            Ok(operation) => {
                let reply = handler(service, operation);
                Box::pin(async move { write(&reply.await?) })
            }
            Err(refusal) => Box::pin(std::future::ready(Err(refusal))),
        }
    };
    Handler { info: &O::INFO, answer: Box::new(answer) }
}

fn read<O: Operation>(arguments: Map<String, Value>) -> Result<O, Refusal> {
    // The arguments were held against the table, so this fails only where the two differ.
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| Refusal::new(code::INVALID_VALUE, error.to_string()))
}

fn write<T: serde::Serialize>(output: &T) -> Result<Vec<u8>, Refusal> {
    let mut body = Vec::with_capacity(USUAL_ANSWER);
    match serde_json::to_writer(&mut body, output) {
        Ok(()) => Ok(body),
        Err(error) => Err(Refusal::new(code::UNEXPECTED, format!("unexpected failure: {error}"))),
    }
}

/// Says how resources are stored and where they can be fetched, for those that need no more.
macro_rules! resource {
    ($($Name:ident = $prefix:ident),+ $(,)?) => {$(
        impl $crate::service::store::Document for $Name {
            const PREFIX: &'static str = $crate::api::id::prefix::$prefix;

            fn id(&self) -> &str {
                &self.id
            }
        }

        impl $crate::service::context::Resource for $Name {
            fn locate(&mut self, base: &$crate::service::address::Base) {
                self.uri = base.of(&self.id);
            }
        }
    )+};
}

use resource;
