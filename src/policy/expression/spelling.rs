//! Names of variables as libraries with types spell them: `req.Method`, `conn.ClientIP`.

use cel::IdedExpr;
use cel::common::ast::{EntryExpr, Expr};

use super::tree::qualified_name;
use super::variables;

/// Gives the variables in a tree the names that they have here.
pub(super) fn correct(node: &mut IdedExpr) {
    if let Some(spelled) = qualified_name(node) {
        if let Some(name) = variables::respelled(&spelled) {
            rename(node, &name);
        }
        return;
    }
    match &mut node.expr {
        Expr::Select(select) => correct(&mut select.operand),
        Expr::Call(call) => {
            call.target.iter_mut().for_each(|target| correct(target));
            call.args.iter_mut().for_each(correct);
        }
        Expr::List(list) => list.elements.iter_mut().for_each(correct),
        Expr::Map(map) => map.entries.iter_mut().for_each(|entry| match &mut entry.expr {
            EntryExpr::MapEntry(entry) => {
                correct(&mut entry.key);
                correct(&mut entry.value);
            }
            EntryExpr::StructField(field) => correct(&mut field.value),
        }),
        Expr::Comprehension(comprehension) => {
            correct(&mut comprehension.iter_range);
            correct(&mut comprehension.accu_init);
            correct(&mut comprehension.loop_cond);
            correct(&mut comprehension.loop_step);
            correct(&mut comprehension.result);
        }
        _ => {}
    }
}

/// Renames each part of a dotted name, of which there are as many as before.
fn rename(node: &mut IdedExpr, name: &str) {
    match &mut node.expr {
        Expr::Ident(own) => name.clone_into(own),
        Expr::Select(select) => {
            let (parent, field) = name.rsplit_once('.').unwrap_or((name, ""));
            field.clone_into(&mut select.field);
            rename(&mut select.operand, parent);
        }
        _ => {}
    }
}
