-- Which MCP tools the agents of a project are offered where nothing is set for an agent itself (T002); empty: what servers ask for.
ALTER TABLE project ADD COLUMN tools_profile TEXT DEFAULT '' NOT NULL;
