//! The operations that are alike for every kind of item, as rows of `resource!` declare them: a server answers each of
//! them with one function.

use serde::Serialize;

use super::{Operation, Page};

/// An operation that lists items page by page, newest first.
pub trait ListItems: Operation<Output = Page<<Self as ListItems>::Item>> {
    /// An item of the list.
    type Item: Serialize + Send + 'static;

    /// The identifier that the items of the page come after, and the size of the page.
    fn into_window(self) -> (Option<String>, Option<i64>);
}

/// An operation that returns one item.
pub trait GetItem: Operation {
    /// The identifier of the item.
    fn into_id(self) -> String;
}

/// An operation that deletes one item.
pub trait DeleteItem: Operation<Output = ()> {
    /// The result of the operation `Get` of the same resource.
    type Item: Serialize + Send + 'static;

    /// The identifier of the item.
    fn into_id(self) -> String;
}
