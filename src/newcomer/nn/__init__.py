"""The learned half. It gets tensors and knows no rules.

sparse        sums over neighbours, with gradients
layers        the structure-aware and the query-aware layer
encoders      vectors of entities out of their neighbourhoods: vn, mean, lstm, lan
decoders      scores of triples out of vectors: distmult, transe, complex
soft_labels   how far virtual triples are believed
model         an encoder and a decoder together
"""
