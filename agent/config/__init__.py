"""The folders of this program, config.toml and the options of a launch."""
