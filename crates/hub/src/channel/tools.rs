//! An engine's registered tools: schemas, allowed calls, and paths that must stay inside the workspace.

use std::cell::RefCell;

use attache_protocol::{Code, Json};
use jsonschema::{PatternOptions, Validator};
use serde::Deserialize;
use serde_json::Value;

use super::{
    paths,
    response::FrameRefusal,
    schema_cost::{SchemaCost, SchemaMeter},
    strict_json::StrictJson,
};

const MAX_TOOLS: usize = 256;
const MAX_SIZE: usize = 256 * 1024;
/// The size limit of one compiled pattern in bytes: enough for `^[A-Za-z0-9_-]{1,255}$`, not for a class of all letters
/// two hundred times.
const MAX_PATTERN_SIZE: usize = 64 * 1024;

/// What a compiled pattern takes at most, as measured: 123 KiB after use.
const PATTERN_BYTES: usize = 128 * 1024;
/// What a compiled schema takes at most for each byte of its text, as measured: 37 for a long `enum`.
const BYTES_PER_BYTE: usize = 40;

/// The tools of one channel.
#[derive(Debug, Default)]
pub(crate) struct ChannelTools {
    tools: Vec<CompiledTool>,
    size: usize,
}

#[derive(Debug)]
struct CompiledTool {
    name: String,
    input: Option<Schema>,
    output: Option<Schema>,
}

#[derive(Debug)]
struct Schema {
    validator: Validator,
    cost: SchemaCost,
}

#[derive(Deserialize)]
struct ToolName {
    name: String,
}

/// The limits for a run's tool calls.
#[derive(Debug, Clone)]
pub(crate) struct ToolBounds {
    /// A JSON array of names. Without it, every tool is allowed.
    pub(crate) allowed: Option<Json>,
    pub(crate) root: Option<String>,
}

thread_local! {
    /// Validators are shared by all runs of an engine, but the root is per run: it is set during one validation.
    static ROOT: RefCell<Option<String>> = const { RefCell::new(None) };
}

// === impl ChannelTools ===

impl ChannelTools {
    /// Parses and compiles the tools. The error names the invalid schema. CPU-heavy: don't call it on a thread that
    /// serves requests.
    pub(crate) fn compile(described: &Json) -> Result<Self, FrameRefusal> {
        if described.get().len() > MAX_SIZE {
            return Err(FrameRefusal::new(Code::TooLarge, "The tools are larger than 256 KiB.").field("payload.tools"));
        }
        let text = described.get().len();
        let list: Vec<Json> =
            described.parse().map_err(|_| FrameRefusal::wrong("payload.tools", "must be an array of tools"))?;
        if list.len() > MAX_TOOLS {
            return Err(FrameRefusal::wrong("payload.tools", "must have at most 256 entries"));
        }
        let mut meter = SchemaMeter::default();
        let mut tools: Vec<CompiledTool> = Vec::with_capacity(list.len());
        for (index, described) in list.into_iter().enumerate() {
            let tool = CompiledTool::compile(&format!("payload.tools[{index}]"), &described, &mut meter)?;
            if tools.iter().any(|known| known.name == tool.name) {
                let field = format!("payload.tools[{index}].name");
                return Err(FrameRefusal::wrong(&field, "is a duplicate tool name"));
            }
            tools.push(tool);
        }
        let size = text * BYTES_PER_BYTE + meter.patterns() * PATTERN_BYTES;
        Ok(Self { tools, size })
    }

    /// About how much memory they take.
    pub(crate) const fn size(&self) -> usize {
        self.size
    }

    /// The names of an engine's tools that a run may call, and the engine's descriptions.
    pub(crate) fn offered(described: &Json, allowed: Option<&Json>) -> (Json, Json) {
        let names = allowed.map(names);
        let tools: Vec<Json> = described.parse().unwrap_or_default();
        let offered = tools.iter().filter_map(|tool| Some((tool.parse::<ToolName>().ok()?.name, tool)));
        let offered = offered.filter(|(name, _)| names.as_ref().is_none_or(|names| names.contains(name)));
        let (offered, described): (Vec<String>, Vec<&Json>) = offered.unzip();
        let listed = match allowed {
            Some(allowed) => allowed.clone(),
            None => Json::of(&offered),
        };
        (listed, Json::of(&described))
    }

    /// Rejects a call that the engine must not see.
    pub(crate) fn check_call(&self, name: &str, arguments: &Json, bounds: &ToolBounds) -> Result<(), FrameRefusal> {
        let refused = |message: String| FrameRefusal::new(Code::ToolRefused, message).field("payload.tool_name");
        if bounds.allowed.as_ref().is_some_and(|allowed| !names(allowed).iter().any(|known| known == name)) {
            return Err(refused(format!("The caller does not allow the tool `{}`.", shown(name))));
        }
        let tool = self.tools.iter().find(|tool| tool.name == name);
        let tool = tool.ok_or_else(|| refused(format!("The caller has no tool `{}`.", shown(name))))?;
        let arguments = serde_json::from_str::<StrictJson>(arguments.get()).map_err(|error| {
            FrameRefusal::new(Code::ToolRefused, format!("The arguments are invalid: {error}."))
                .field("payload.arguments")
        })?;
        if !arguments.0.is_object() {
            return Err(FrameRefusal::wrong("payload.arguments", "must be a JSON object"));
        }
        let Some(schema) = &tool.input else { return Ok(()) };
        validate(schema, &arguments.0, bounds.root.as_deref(), "payload.arguments")
    }

    /// Rejects a result that doesn't match the tool's output schema.
    pub(crate) fn check_result(&self, name: &str, result: &Json) -> Result<(), FrameRefusal> {
        let schema = self.tools.iter().find(|tool| tool.name == name).and_then(|tool| tool.output.as_ref());
        let Some(schema) = schema else { return Ok(()) };
        let result: Value = result.parse().unwrap_or(Value::Null);
        validate(schema, &result, None, "payload.result")
    }
}

fn names(allowed: &Json) -> Vec<String> {
    allowed.parse().unwrap_or_default()
}

fn shown(name: &str) -> String {
    name.chars().filter(|character| !character.is_control()).take(80).collect()
}

fn validate(schema: &Schema, value: &Value, root: Option<&str>, field: &str) -> Result<(), FrameRefusal> {
    if !schema.cost.affords(value) {
        let message = format!("`{field}` is too complex to check against the tool's schema.");
        return Err(FrameRefusal::new(Code::ToolRefused, message).field(field));
    }
    ROOT.with_borrow_mut(|current| *current = root.map(str::to_owned));
    let outcome = schema.validator.validate(value).map_err(|error| {
        let field = format!("{field}{}", error.instance_path().as_str().replace('/', "."));
        let is_path = error.kind().keyword() == "format" && error.to_string().contains("\"path\"");
        let message = match (is_path, root) {
            (true, Some(_)) => format!("`{field}` is outside the run's workspace_root."),
            (true, None) => format!("`{field}` is not a path."),
            (false, _) => format!("`{field}` does not match the tool's schema: {}.", error.masked()),
        };
        FrameRefusal::new(Code::ToolRefused, message).field(&field)
    });
    ROOT.with_borrow_mut(|current| *current = None);
    outcome
}

// === impl CompiledTool ===

impl CompiledTool {
    fn compile(field: &str, described: &Json, meter: &mut SchemaMeter) -> Result<Self, FrameRefusal> {
        #[derive(Deserialize)]
        struct ToolDescription {
            name: String,
            #[serde(default)]
            input_schema: Option<Value>,
            #[serde(default)]
            output_schema: Option<Value>,
        }
        let at = |member: &str| format!("{field}.{member}");
        if !described.is_object() {
            return Err(FrameRefusal::wrong(field, "must be an object with a `name`"));
        }
        let read: ToolDescription =
            described.parse().map_err(|_| FrameRefusal::wrong(&at("name"), "must be a string"))?;
        let plain = |byte: u8| byte.is_ascii_graphic();
        if !(1..=128).contains(&read.name.len()) || !read.name.bytes().all(plain) {
            return Err(FrameRefusal::wrong(&at("name"), "must be 1 to 128 printable characters without spaces"));
        }
        let input = read.input_schema.map(|schema| compile(&at("input_schema"), &schema, meter)).transpose()?;
        let output = read.output_schema.map(|schema| compile(&at("output_schema"), &schema, meter)).transpose()?;
        Ok(Self { name: read.name, input, output })
    }
}

fn compile(field: &str, schema: &Value, meter: &mut SchemaMeter) -> Result<Schema, FrameRefusal> {
    let unusable = |why: String| FrameRefusal::wrong(field, &format!("is not a usable JSON Schema: {why}"));
    let cost = meter.measure(schema).map_err(|why| unusable(format!("it {why}")))?;
    // Patterns are untrusted: the linear-time engine can't be made to run forever or use much memory.
    let patterns = PatternOptions::regex().size_limit(MAX_PATTERN_SIZE).dfa_size_limit(MAX_PATTERN_SIZE);
    let options = jsonschema::options()
        .with_pattern_options(patterns)
        .should_validate_formats(true)
        .with_format("path", |path: &str| ROOT.with_borrow(|root| paths::stays_inside(root.as_deref(), path)));
    let validator = options.build(schema).map_err(|error| unusable(error.masked().to_string()))?;
    Ok(Schema { validator, cost })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::from_text(text).unwrap()
    }

    const TOOLS: &str = r##"[{"name":"read","input_schema":{"type":"object","required":["path"],"additionalProperties":false,
                "properties":{"path":{"$ref":"#/$defs/p"},"more":{"type":"array","items":{"$ref":"#/$defs/p"}},"deep":{"type":"object","properties":{"p":{"$ref":"#/$defs/p"}}}},
                "$defs":{"p":{"type":"string","format":"path"}}}},
              {"name":"add","output_schema":{"type":"number"}}]"##;

    fn tools() -> ChannelTools {
        ChannelTools::compile(&json(TOOLS)).unwrap()
    }

    fn field(arguments: &str) -> Option<String> {
        let bounds = ToolBounds { allowed: None, root: Some("/srv/project".to_owned()) };
        tools().check_call("read", &json(arguments), &bounds).err().map(|refusal| {
            assert_eq!(refusal.code, "tool_refused", "{}", refusal.message);
            refusal.field.unwrap()
        })
    }

    #[test]
    fn arguments_match_the_schema_and_paths_stay_inside() {
        assert_eq!(field(r#"{"path":"src/main.rs","more":["/srv/project/a","b/../c"],"deep":{"p":"."}}"#), None);
        for (arguments, wrong) in [
            (r#"{}"#, "payload.arguments"),
            (r#"{"path":7}"#, "payload.arguments.path"),
            (r#"{"path":"x","extra":1}"#, "payload.arguments"),
            (r#"{"path":"../x"}"#, "payload.arguments.path"),
            (r#"{"path":"/etc/passwd"}"#, "payload.arguments.path"),
            (r#"{"path":"a\u0000b"}"#, "payload.arguments.path"),
            (r#"{"path":"x","more":["ok","/srv/projectile"]}"#, "payload.arguments.more.1"),
            (r#"{"path":"x","deep":{"p":"a/../../b"}}"#, "payload.arguments.deep.p"),
            (r#"{"path":"x","path":"../y"}"#, "payload.arguments"),
        ] {
            assert_eq!(field(arguments).as_deref(), Some(wrong), "{arguments}");
        }
    }

    #[test]
    fn only_allowed_and_known_tools_are_called() {
        let none = ToolBounds { allowed: None, root: None };
        let only_add = json(r#"["add","gone"]"#);
        let bounds = ToolBounds { allowed: Some(only_add.clone()), root: None };
        let field = |result: Result<(), FrameRefusal>| result.unwrap_err().field.unwrap();
        assert_eq!(tools().check_call("add", &json(r#"{"any":["/etc"]}"#), &bounds), Ok(()));
        assert_eq!(field(tools().check_call("read", &json(r#"{"path":"x"}"#), &bounds)), "payload.tool_name");
        assert_eq!(field(tools().check_call("gone", &json("{}"), &bounds)), "payload.tool_name");
        assert_eq!(tools().check_call("read", &json(r#"{"path":"/anywhere"}"#), &none), Ok(()));
        assert_eq!(field(tools().check_call("add", &json("[]"), &none)), "payload.arguments");
        assert_eq!(tools().check_result("add", &json("7")), Ok(()));
        assert_eq!(field(tools().check_result("add", &json("\"7\""))), "payload.result");
        let offered = |allowed| ChannelTools::offered(&json(TOOLS), allowed);
        assert_eq!(offered(None).0.get(), r#"["read","add"]"#);
        assert_eq!(offered(Some(&only_add)).1.get(), r#"[{"name":"add","output_schema":{"type":"number"}}]"#);
    }

    #[test]
    fn the_error_names_an_unusable_schema() {
        let field = |text: &str| ChannelTools::compile(&json(text)).map(drop).unwrap_err().field.unwrap();
        for (text, wrong) in [
            ("{}", "payload.tools"),
            ("[7]", "payload.tools[0]"),
            (r#"[{"description":"x"}]"#, "payload.tools[0].name"),
            (r#"[{"name":""}]"#, "payload.tools[0].name"),
            (r#"[{"name":"a b"}]"#, "payload.tools[0].name"),
            (r#"[{"name":"a"},{"name":"a"}]"#, "payload.tools[1].name"),
            (r#"[{"name":"a","input_schema":{"type":"text"}}]"#, "payload.tools[0].input_schema"),
            (r#"[{"name":"a","output_schema":7}]"#, "payload.tools[0].output_schema"),
            (r#"[{"name":"a","input_schema":{"$ref":"http://127.0.0.1:1/x"}}]"#, "payload.tools[0].input_schema"),
            (r#"[{"name":"a","input_schema":{"pattern":"("}}]"#, "payload.tools[0].input_schema"),
            (r#"[{"name":"a","input_schema":{"pattern":"^[\\pL]{200}x$"}}]"#, "payload.tools[0].input_schema"),
            (r#"[{"name":"a","input_schema":{"pattern":"^(((a{50}){50}){50})$"}}]"#, "payload.tools[0].input_schema"),
        ] {
            assert_eq!(field(text), wrong, "{text}");
        }
    }
}
