//! Usage errors, and how parts of a message are put together.

texts! {
    labelled(label, text): "{label} {text}" zh "{label}{text}";
    then(text): ". {text}" zh "。{text}";

    tip: "tip:" zh "提示：";
    unknown_argument(argument): "unexpected argument '{argument}' found" zh "不认识的参数 '{argument}'";
    similar_argument(argument): "a similar argument exists: '{argument}'" zh "有一个相近的参数：'{argument}'";
    similar_command(command): "a similar subcommand exists: '{command}'" zh "有一个相近的命令：'{command}'";
    similar_commands(commands): "some similar subcommands exist: {commands}" zh "有一些相近的命令：{commands}";
    similar_value(value): "a similar value exists: '{value}'" zh "有一个相近的值：'{value}'";
    to_pass_value(argument): "to pass '{argument}' as a value, use '-- {argument}'" zh "要将 '{argument}' 作为值传入，请使用 '-- {argument}'";
    option_of(command, argument): "'{command} {argument}' exists" zh "可以使用 '{command} {argument}'";
    unknown_command(command): "unrecognized subcommand '{command}'" zh "不认识的命令 '{command}'";
    missing_arguments: "the following required arguments were not provided:" zh "缺少以下必需的参数：";
    no_value(argument): "a value is required for '{argument}' but none was supplied" zh "'{argument}' 需要一个值";
    wrong_value(value, argument): "invalid value '{value}' for '{argument}'" zh "'{argument}' 的值 '{value}' 无效";
    wrong_value_because(value, argument, reason): "invalid value '{value}' for '{argument}': {reason}" zh "'{argument}' 的值 '{value}' 无效：{reason}";
    possible_values(values): "[possible values: {values}]" zh "[可选值：{values}]";
    extra_value(value, argument): "unexpected value '{value}' for '{argument}' found; no more were expected" zh "'{argument}' 的值 '{value}' 是多余的";
    used_twice(argument): "the argument '{argument}' cannot be used multiple times" zh "参数 '{argument}' 不能重复使用";
    conflict(argument, others): "the argument '{argument}' cannot be used with {others}" zh "参数 '{argument}' 不能与 {others} 同时使用";
    no_command(command): "'{command}' requires a subcommand but one was not provided" zh "'{command}' 需要一个子命令";
    more_help: "For more information, try '--help'." zh "如需更多信息，请使用 '--help'。";
}
