//! The files of the page, beside those that it shares with the console of the service.

use ginnel_web::Asset;

/// The files that the inspector alone uses.
pub(super) const ASSETS: &[Asset] = &[
    Asset { name: "inspect.css", content: include_str!("assets/inspect.css") },
    Asset { name: "actions.js", content: include_str!("assets/actions.js") },
    Asset { name: "body.js", content: include_str!("assets/body.js") },
    Asset { name: "compose.js", content: include_str!("assets/compose.js") },
    Asset { name: "copies.js", content: include_str!("assets/copies.js") },
    Asset { name: "curl.js", content: include_str!("assets/curl.js") },
    Asset { name: "detail.js", content: include_str!("assets/detail.js") },
    Asset { name: "difference.js", content: include_str!("assets/difference.js") },
    Asset { name: "editor.js", content: include_str!("assets/editor.js") },
    Asset { name: "filters.js", content: include_str!("assets/filters.js") },
    Asset { name: "forms.js", content: include_str!("assets/forms.js") },
    Asset { name: "headers.js", content: include_str!("assets/headers.js") },
    Asset { name: "held.js", content: include_str!("assets/held.js") },
    Asset { name: "import.js", content: include_str!("assets/import.js") },
    Asset { name: "keys.js", content: include_str!("assets/keys.js") },
    Asset { name: "list.js", content: include_str!("assets/list.js") },
    Asset { name: "live.js", content: include_str!("assets/live.js") },
    Asset { name: "messages.js", content: include_str!("assets/messages.js") },
    Asset { name: "outage.js", content: include_str!("assets/outage.js") },
    Asset { name: "protobuf.js", content: include_str!("assets/protobuf.js") },
    Asset { name: "proto_files.js", content: include_str!("assets/proto_files.js") },
    Asset { name: "qr.js", content: include_str!("assets/qr.js") },
    Asset { name: "requests.js", content: include_str!("assets/requests.js") },
    Asset { name: "rules.js", content: include_str!("assets/rules.js") },
    Asset { name: "schedules.js", content: include_str!("assets/schedules.js") },
    Asset { name: "selection.js", content: include_str!("assets/selection.js") },
    Asset { name: "share.js", content: include_str!("assets/share.js") },
    Asset { name: "start.js", content: include_str!("assets/start.js") },
    Asset { name: "status.js", content: include_str!("assets/status.js") },
    Asset { name: "tools.js", content: include_str!("assets/tools.js") },
    Asset { name: "traffic.js", content: include_str!("assets/traffic.js") },
    Asset { name: "viewer.js", content: include_str!("assets/viewer.js") },
];

#[cfg(test)]
mod tests {
    use super::*;
    use ginnel_web::checks;

    #[test]
    fn the_page_is_small() {
        checks::the_page_is_small(ASSETS);
    }

    #[test]
    fn nothing_comes_from_elsewhere() {
        checks::nothing_comes_from_elsewhere(ASSETS);
        checks::names_are_unique(ASSETS);
    }
}
