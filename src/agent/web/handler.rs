//! What the files of handlers share.

use std::sync::Arc;

use super::rejection::WebRejection;
use crate::agent::inner::AgentInner;
use crate::api::{Operation, OperationHandler, PathOperations};

pub(super) type WebHandler = OperationHandler<Shared, WebRejection>;
/// All that one path template of the local API answers.
pub(super) type WebOperations = PathOperations<Shared, WebRejection>;
pub(super) type WebResult<O> = Result<<O as Operation>::Output, WebRejection>;
pub(super) type Shared = Arc<AgentInner>;
