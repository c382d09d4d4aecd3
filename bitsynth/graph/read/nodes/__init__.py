"""Readers of ONNX nodes, a file for each family of operators: a node becomes nodes of the operator table."""
