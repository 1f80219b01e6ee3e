//! Where requests stop making sense: too deep, too large, broken, at no path; and who is told what.

mod garbage;
mod limits;
mod sight;
mod tenants;
