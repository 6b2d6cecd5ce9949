"""Rule mining: `mine_rules` finds the rules of a graph that a `MiningPlan` asks for."""

from newcomer.rules.mining.miner import mine_rules
from newcomer.rules.mining.plan import MiningPlan, MiningResult

__all__ = ["MiningPlan", "MiningResult", "mine_rules"]
