//! Tests with hostile and harmless URLs, rules, and real calls on loopback.

mod calls;
mod urls;

use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{Arc, Mutex},
};

use super::*;

/// Resolves each name by its script, one line per lookup. The last line repeats.
#[derive(Debug, Default)]
struct ScriptedResolver {
    answers: Mutex<VecDeque<Vec<IpAddr>>>,
    asked: Mutex<Vec<String>>,
}

impl ScriptedResolver {
    fn new(lines: &[&[&str]]) -> Arc<Self> {
        let line = |line: &&[&str]| line.iter().map(|address| address.parse().unwrap()).collect();
        Arc::new(Self { answers: Mutex::new(lines.iter().map(line).collect()), asked: Mutex::default() })
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Resolver for ScriptedResolver {
    fn resolve(&self, name: &str) -> ResolverLookup {
        self.asked.lock().unwrap().push(name.to_owned());
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        Box::pin(std::future::ready(Ok(answer.unwrap_or_default())))
    }
}

fn policy(rules: &[&str]) -> EgressPolicy {
    EgressPolicy { allow: rules.iter().map(|rule| rule.parse().unwrap()).collect() }
}

fn guard(rules: &[&str]) -> EgressGuard {
    EgressGuard::new(policy(rules))
}

fn scripted(rules: &[&str], script: &Arc<ScriptedResolver>) -> EgressGuard {
    EgressGuard::with(policy(rules), EgressLimits::default(), script.clone())
}
