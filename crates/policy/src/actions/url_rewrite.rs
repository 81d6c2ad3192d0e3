//! `url-rewrite`: change the URL of a request.

use super::change::UrlRewriteRule;
use super::prelude::*;

/// Rewrites the URL of a request before it is forwarded.
#[derive(Debug)]
pub struct UrlRewrite {
    /// What is changed.
    pub change: UrlRewriteRule,
}

impl Action for UrlRewrite {
    fn result_of_path(&self, turn: &Turn<'_>) -> Option<bool> {
        self.change.rewrite_url(turn).map(|changed| changed.is_change).ok()
    }

    fn run(&self, turn: &mut Turn<'_>) -> ActionResult<Flow> {
        let changed = self.change.rewrite_url(turn)?;
        let Some(request) = turn.exchange.request() else { return Ok(Flow::Continue) };
        let target = changed.rewritten_target(request)?;
        turn.set_result(changed.result_json());
        if let Some(request) = turn.exchange.request_mut().filter(|_| changed.is_change) {
            target.put_into(request);
        }
        Ok(Flow::Continue)
    }
}

pub(in super::super) fn parse_config(config: &mut Config<'_>) -> Box<dyn Action> {
    Box::new(UrlRewrite { change: UrlRewriteRule::from_config(config) })
}
