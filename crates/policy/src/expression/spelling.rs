//! Names of variables as libraries with types spell them: `req.Method`, `conn.ClientIP`.

use cel::IdedExpr;
use cel::common::ast::{CallExpr, EntryExpr, Expr, operators};

use super::tree::{integer_node, qualified_name, string_literal};
use super::variables;

/// The status as libraries spell it; their examples compare it with text.
const STATUS: &str = "res.StatusCode";

/// Gives the variables in a tree the names that they have here; `bound` are names of something else.
pub(super) fn correct_names(node: &mut IdedExpr, bound: &mut Vec<String>) {
    if let Some(spelled) = qualified_name(node) {
        let root = spelled.split('.').next().unwrap_or_default();
        if !bound.iter().any(|name| name == root)
            && let Some(name) = variables::correct_spelling(&spelled)
        {
            rename_variable(node, &name);
        }
        return;
    }
    match &mut node.expr {
        Expr::Select(select) => correct_names(&mut select.operand, bound),
        Expr::Call(call) => {
            correct_status(call);
            let parts = call.target.iter_mut().map(|target| &mut **target).chain(&mut call.args);
            parts.for_each(|part| correct_names(part, bound));
        }
        Expr::List(list) => list.elements.iter_mut().for_each(|it| correct_names(it, bound)),
        Expr::Map(map) => map.entries.iter_mut().for_each(|entry| match &mut entry.expr {
            EntryExpr::MapEntry(entry) => {
                correct_names(&mut entry.key, bound);
                correct_names(&mut entry.value, bound);
            }
            EntryExpr::StructField(field) => correct_names(&mut field.value, bound),
        }),
        Expr::Comprehension(comprehension) => {
            correct_names(&mut comprehension.iter_range, bound);
            correct_names(&mut comprehension.accu_init, bound);
            bound.push(comprehension.iter_var.clone());
            correct_names(&mut comprehension.loop_cond, bound);
            correct_names(&mut comprehension.loop_step, bound);
            bound.pop();
            correct_names(&mut comprehension.result, bound);
        }
        _ => {}
    }
}

/// Makes a number of a text that the status is compared with.
fn correct_status(call: &mut CallExpr) {
    if !matches!(call.func_name.as_str(), operators::EQUALS | operators::NOT_EQUALS) {
        return;
    }
    let [one, other] = call.args.as_mut_slice() else { return };
    let is_status = |node: &IdedExpr| qualified_name(node).as_deref() == Some(STATUS);
    let compared = match (is_status(one), is_status(other)) {
        (true, false) => other,
        (false, true) => one,
        _ => return,
    };
    if let Some(code) = string_literal(compared).and_then(|text| text.parse().ok()) {
        *compared = integer_node(compared.id, code);
    }
}

/// Renames each part of a dotted name, of which there are as many as before.
fn rename_variable(node: &mut IdedExpr, name: &str) {
    match &mut node.expr {
        Expr::Ident(own) => name.clone_into(own),
        Expr::Select(select) => {
            let (parent, field) = name.rsplit_once('.').unwrap_or((name, ""));
            field.clone_into(&mut select.field);
            rename_variable(&mut select.operand, parent);
        }
        _ => {}
    }
}
