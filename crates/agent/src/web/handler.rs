//! What the files of handlers share.

use std::sync::Arc;

use ginnel_api::{Operation, OperationHandler, PathOperations};

use super::rejection::WebRejection;
use crate::inner::AgentInner;

pub(super) type WebHandler = OperationHandler<Shared, WebRejection>;
/// All that one path template of the local API answers.
pub(super) type WebOperations = PathOperations<Shared, WebRejection>;
pub(super) type WebResult<O> = Result<<O as Operation>::Output, WebRejection>;
pub(super) type Shared = Arc<AgentInner>;
