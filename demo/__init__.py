"""The main job, shown: real agents, both doors, one of them killed, and what can be read afterwards."""
