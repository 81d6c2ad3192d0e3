//! By which roles documents refer to each other, where more than one folder follows them.

use ginnel_api::remote::edges::routes::HttpsEdgeRoute;

use super::store::{self, View};

/// Where hosts and ports of edges are unique.
pub(super) const HOSTPORTS: &str = "hostport";
/// The role of an edge for its routes.
pub(super) const EDGE_OF_ROUTE: &str = "edge";
/// The role of a policy for its rules.
pub(super) const POLICY_OF_RULE: &str = "ip_policy";

/// The routes of an edge, newest first.
pub(super) fn routes_of(view: &View<'_>, edge_id: &str) -> store::StoreResult<Vec<HttpsEdgeRoute>> {
    let ids = view.referrers(edge_id, EDGE_OF_ROUTE)?;
    ids.iter().filter_map(|id| view.find_document(id).transpose()).collect()
}
